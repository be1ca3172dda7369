"""What the documentation site has beside docs/: the repository's own pages, a gallery that the
recogniser writes while the site is built, and the page without a server if `make docs` got it."""

from __future__ import annotations

import posixpath
import re
import shutil
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

import gryphone
from gryphone.cli.demo import draw_refinement
from gryphone.latex.normalize import normalize
from gryphone.writers import TARGETS

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
MADE = ROOT / "build" / "docs"
PAGE = ROOT / "build" / "page"
PAGES = {
    "README.md": "index.md",
    "MODEL_CARD.md": "model-card.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
ROW = 'style="display:flex;flex-wrap:wrap;gap:2em;align-items:center;margin:1.5em 0"'
LINK = re.compile(r"(!?\[[^\]\n]*\])\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add pages and files from around docs/."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    linked = (*ROOT.glob("configs/**/*.yaml"), *ROOT.glob("configs/*.mk"), *ROOT.glob("deploy/*"))
    for file in (*linked, ROOT / "gryphone/weights/LICENSE"):
        _serve(files, config, file.relative_to(ROOT).as_posix(), file)
    _gallery(files, config)
    text = (
        '<iframe src="../app/" title="GryphOne" style="width:100%;height:80vh;border:0"></iframe>'
        if (PAGE / "index.html").is_file()
        else "This copy of the site was built without it; `gryphone page DIR` writes it."
    )
    about = "# Try it\n\nThe recogniser in this browser: what you write goes nowhere.\n\n"
    files.append(File.generated(config, "try.md", content=about + text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point the links of files that lie elsewhere in the repository to where they are here."""
    here = page.file.src_uri
    homes = {page: name for name, page in PAGES.items()}
    home = posixpath.dirname(homes.get(here, f"docs/{here}"))

    def aimed(match: re.Match[str]) -> str:
        label, target, anchor = match.groups()
        path = posixpath.normpath(posixpath.join(home, target))
        if "://" in target or not (ROOT / path).exists():
            return match.group()
        if (ROOT / path).is_dir():
            return label.strip("[]")
        there = PAGES.get(path, path.removeprefix("docs/"))
        return f"{label}({posixpath.relpath(there, posixpath.dirname(here))}{anchor or ''})"

    return LINK.sub(aimed, markdown)


def on_post_build(config: Any) -> None:
    """Put the page without a server beside the text."""
    if (PAGE / "index.html").is_file():
        shutil.copytree(PAGE, Path(config["site_dir"]) / "app")


def _serve(files: Any, config: Any, name: str, path: Path) -> None:
    files.append(File.generated(config, name, abs_src_path=str(path)))


def _gallery(files: Any, config: Any) -> None:
    """Every photo of examples/ with its answer, one refinement, one formula in all notations."""
    recognizer = gryphone.load()
    lines = [line.split("\t") for line in (EXAMPLES / "photo/labels.tsv").read_text().splitlines()]
    truths = {name.removesuffix(".jpg"): truth for name, truth in lines}
    text = [
        "# Gallery",
        "",
        f"What {len(truths)} photos of the repository's examples are read as, by the bundled "
        "weights, while this site was built. Below each formula are the boxes of its symbols, "
        "tinted where the recogniser is less sure (point at one to see what else it may be).",
    ]
    for name, truth in truths.items():
        result = recognizer.recognize(EXAMPLES / "photo" / f"{name}.jpg")
        _serve(files, config, f"gallery/{name}.jpg", EXAMPLES / "photo" / f"{name}.jpg")
        right = list(result.tokens) == normalize(truth)
        said = "" if right else f"<p>Wrong: it is <code>{escape(truth)}</code>.</p>"
        shown = result._repr_html_().replace("\n", " ")
        photo = f'<img src="{name}.jpg" alt="{escape(truth)}" style="height:9em">'
        text += ["", f"<div {ROW}>{photo}<div>{shown}{said}</div></div>"]
    MADE.mkdir(parents=True, exist_ok=True)
    steps: list[Any] = []
    encoded = recognizer.encode(EXAMPLES / "ink" / "13-quadratic.inkml")
    result = encoded.decode(steps=10, on_step=steps.append)
    draw_refinement(encoded.ink, steps, MADE / "refinement.png")
    _serve(files, config, "gallery/refinement.png", MADE / "refinement.png")
    text += [
        "",
        "## Refinement",
        "",
        "The ink of 13-quadratic, step by step: grey was hidden from a step, red has changed.",
        "",
        "![Ten steps](gallery/refinement.png)",
        "",
        "## One formula in every notation",
    ]
    for target in TARGETS:
        text += ["", f"`{target}`", "", "```text", result.to(target), "```"]
    files.append(File.generated(config, "gallery.md", content="\n".join(text)))
