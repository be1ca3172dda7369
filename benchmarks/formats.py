"""Every formula of a list in every notation: how many are written, what is not, and why.

python benchmarks/formats.py ../shared/data/formulas/formulas.tsv.xz [--every 10] [--out table.md]
"""

import argparse
import json
import lzma
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gryphone.errors import GryphoneError, LatexError
from gryphone.latex.validity import is_valid
from gryphone.writers import TARGETS, write
from gryphone.writers.walk import read

TOGETHER = 400  # formulas in one document of Typst


def formulas(path: Path, every: int) -> list[str]:
    """The formulas that are LaTeX at all, one of each `every`."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        texts = [line.rstrip("\n").rpartition("\t")[2] for line in lines]
    return [text for text in texts[::every] if is_valid(text)]


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

    from gryphone.writers.sympy import to_sympy

    whole = to_sympy(latex)
    for value in whole.args if isinstance(whole, sympy.And) else (whole,):
        again = to_sympy(sympy.latex(value, ln_notation=True))
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


def study(name: str, sources: list[str], most: int) -> dict[str, Any]:
    """Counts for one target, and examples of what went wrong."""
    began, reasons, wrong, texts = time.perf_counter(), Counter[str](), [], []
    checked = 0
    for latex in sources[: most or None]:
        try:
            text = write(latex, name)
        except LatexError as error:
            reasons[reason(error)] += 1
            continue
        texts.append(text)
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
        "formulas": len(sources[: most or None]),
        "written": len(texts),
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
    parser.add_argument("--most", type=int, default=0, help="at most so many for each target")
    parser.add_argument("--targets", nargs="*", default=[*TARGETS][1:])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    sources = formulas(options.file, options.every)
    for name in options.targets:
        found = study(name, sources, options.most)
        if options.out:
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found, ensure_ascii=False) + "\n")
        print({key: value for key, value in found.items() if key != "examples"}, flush=True)


if __name__ == "__main__":
    main()
