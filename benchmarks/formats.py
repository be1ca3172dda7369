"""Every formula of a list in every notation: how many are written, what is not, and why.

python benchmarks/formats.py ../shared/data/formulas/formulas.tsv.xz --out formats.jsonl
prints the table of docs/formats.md, and below it what cannot be written; --every 100 for a look.
"""

import argparse
import json
import lzma
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gryphone.errors import GryphoneError, LatexError
from gryphone.latex.normalize import normalize
from gryphone.latex.validity import is_valid
from gryphone.writers import TARGETS, write
from gryphone.writers.compute import Calculator, ComputeError
from gryphone.writers.omml import write_docx
from gryphone.writers.walk import read

TOGETHER = 400  # formulas in one document of Typst
EVERY = {"readable": 4, "mathml": 4, "sympy": 40}  # what takes long is asked of one of so many


def formulas(path: Path, every: int) -> list[tuple[int, str, str]]:
    """The formulas that are LaTeX at all, one of each `every`: number, where it is from, text."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        rows = [line.rstrip("\n").partition("\t") for line in lines]
    kept = enumerate(rows[::every])
    return [(number, source, text) for number, (source, _, text) in kept if is_valid(text)]


def reason(error: Exception) -> str:
    """What an error is about, without place and formula."""
    text = re.sub(r" \(at character \d+\)", "", str(error))
    found = re.search(r"has no MathML:? (.*)", text)
    return (found[1] if found else text)[:70]


def reads_alike(latex: str, text: str) -> bool:
    """Whether readable LaTeX is the same formula, spelt one way."""
    one, two = (re.sub(r"columns=\(.*?\)", "", repr(read(source))) for source in (latex, text))
    return one == two


def same_meaning(latex: str, _: str) -> bool:
    """Whether SymPy's own LaTeX of what was read is read as the same again."""
    import sympy

    from gryphone.writers.sympy import evaluated, to_sympy

    whole = evaluated(to_sympy(latex))
    for value in whole.args if isinstance(whole, sympy.And) else (whole,):
        again = evaluated(to_sympy(sympy.latex(value, ln_notation=True)))
        if again == value or str(again) == str(value):
            continue
        if type(again) is not type(value) or not isinstance(
            value, sympy.Expr | sympy.core.relational.Relational
        ):
            return False
        sides = (
            zip(again.args, value.args, strict=True) if value.is_Relational else ((again, value),)
        )
        if any(sympy.expand(one - two) != 0 for one, two in sides):
            return False
    return True


def compiled(texts: list[str]) -> list[tuple[str, str]]:
    """The Typst formulas that do not compile, and what Typst says."""
    import typst

    try:
        typst.compile("\n\n".join(f"$ {text} $" for text in texts).encode(), format="pdf")
    except Exception as error:
        if len(texts) == 1:
            return [(texts[0], str(error).splitlines()[0])]
        half = len(texts) // 2
        return compiled(texts[:half]) + compiled(texts[half:])
    return []


CHECKS: dict[str, Callable[[str, str], bool]] = {"readable": reads_alike, "sympy": same_meaning}


def maths(node: Any) -> Iterator[str]:
    """The formulas of a document as pandoc reads it."""
    if isinstance(node, dict) and node.get("t") == "Math":
        yield node["c"][1]
    elif isinstance(node, dict | list):
        for part in node.values() if isinstance(node, dict) else node:
            yield from maths(part)


def plain(latex: str) -> list[str]:
    """Tokens without braces, and with one name for what pandoc calls otherwise."""
    swap = {r"\widehat": r"\hat", r"\widetilde": r"\tilde", r"\bar": r"\overline"}
    swap |= {r"\vec": r"\overrightarrow", r"\hslash": r"\hbar", r"\emptyset": r"\varnothing"}
    swap |= {r"\bm": r"\mathbf", r"\boldsymbol": r"\mathbf", r"\prime": "'"}
    return [swap.get(token, token) for token in normalize(latex) if token not in ("{", "}")]


def read_back(name: str, sources: list[str]) -> tuple[int, int]:
    """How many formulas pandoc finds in a document of them, and how many it reads as they were."""
    import pypandoc

    with TemporaryDirectory() as folder:
        if name == "omml":
            file, kind = Path(folder) / "x.docx", "docx"
            write_docx(sources, file)
        else:
            file, kind = Path(folder) / "x.typ", "typst"
            file.write_text("\n\n".join(f"$ {write(latex, name)} $" for latex in sources))
        found = [*maths(json.loads(pypandoc.convert_file(str(file), "json", format=kind)))]
    alike = 0
    for latex, text in zip(sources, found, strict=True):
        try:
            alike += plain(latex) == plain(text) or read(latex) == read(text)
        except LatexError:
            continue
    return len(found), alike


def study(name: str, sources: list[tuple[str, str]], back: int) -> dict[str, Any]:
    """Counts for one target, and examples of what went wrong."""
    began, reasons, wrong, texts = time.perf_counter(), Counter[str](), [], []
    checked, kept, origins = 0, [], Counter[str]()
    written = Calculator().write if name == "sympy" else partial(write, target=name)
    for origin, latex in sources:
        try:
            text = written(latex)
        except (LatexError, ComputeError) as error:
            reasons[reason(error)] += 1
            continue
        texts.append(text)
        kept.append(latex)
        origins[origin] += 1
        if name in CHECKS:
            checked += 1
            try:
                if not CHECKS[name](latex, text):
                    wrong.append((latex, text))
            except GryphoneError as error:
                wrong.append((latex, f"{text}: {error}"))
    seconds = time.perf_counter() - began
    if name == "typst":
        checked = len(texts)
        for at in range(0, len(texts), TOGETHER):
            wrong += compiled(texts[at : at + TOGETHER])
    return {
        "target": name,
        "formulas": dict(Counter(origin for origin, _ in sources)),
        "written": dict(origins),
        "pandoc": read_back(name, kept[::back]) if back and name in ("omml", "typst") else None,
        "checked": checked,
        "wrong": len(wrong),
        "seconds": round(seconds, 1),
        "reasons": reasons.most_common(40),
        "examples": wrong[:40],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--every", type=int, default=1, help="take one of so many")
    parser.add_argument("--back", type=int, default=0, help="pandoc reads one of so many back")
    parser.add_argument("--targets", nargs="*", default=[*TARGETS][1:])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    sources = formulas(options.file, options.every)
    print("| | formulas | written | read again, or compiled | of these not as they were |")
    print("| --- | ---: | ---: | ---: | ---: |")
    refused = []
    for name in options.targets:
        every = EVERY.get(name, 1)
        some = [(origin, text) for number, origin, text in sources if number % every == 0]
        found = study(name, some, options.back)
        row = len(some), sum(found["written"].values()), found["checked"], found["wrong"]
        part = f"one of {every}: " if every > 1 else ""
        print(
            f"| `{name}` | {part}" + " | ".join(f"{number:,}" for number in row) + " |", flush=True
        )
        refused.append(f"{name}: " + "; ".join(f"{why} ({n})" for why, n in found["reasons"]))
        if options.out:
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found, ensure_ascii=False) + "\n")
    print("", *refused, sep="\n\n")


if __name__ == "__main__":
    main()
