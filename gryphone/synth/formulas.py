"""Labels without end: formulas mined from papers, cleaned, cut to the lengths that people write."""

import contextlib
import lzma
import random
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from math import exp, log
from pathlib import Path

from gryphone.data.datasets import read_dataset
from gryphone.data.samples import Sample
from gryphone.errors import GryphoneError
from gryphone.latex.normalize import normalize
from gryphone.synth.layouts import PROTECTED_LENGTH
from gryphone.synth.symbols import RELATIONS, words
from gryphone.tokens import sat_split

CONVENTION = "crohme"
LONGEST, CUT_ABOVE = 40, 14  # symbols of a formula, and beyond which its parts are taken as well
MEDIAN = 10.0  # symbols of the formulas chosen
STRUCTURED = 3.0  # how much likelier formulas with fractions, roots, sums and the like are

# Bold and upright letters are written like any others.
_WEIGHTS = re.compile(r"\\(mathbf|boldsymbol|bm|textbf|mathsf|mathtt|pmb|bold)(?![A-Za-z])")
_OLD_WEIGHTS = re.compile(r"\\(bf|sf|tt|sl)(?![A-Za-z])")

_CUT_AT = frozenset(RELATIONS) | {",", "\\Rightarrow", "\\Leftrightarrow"}
_OPEN, _CLOSE = frozenset("([") | {"\\{"}, frozenset(")]") | {"\\}"}


def read_formulas(path: Path) -> Iterator[str]:
    """The formulas of a .txt.xz (one on a line) or .tsv.xz (source, formula) file."""
    tabbed = path.name.split(".")[1] == "tsv"
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            text = line.rstrip("\n")
            yield text.split("\t", 1)[-1] if tabbed else text


def protected_labels(datasets: Iterable[Path], tables: Iterable[Path]) -> frozenset[str]:
    """Labels that must never be synthesised: those of data sets, and the truths of score tables
    (id, truth, prediction), normalised and joined by spaces."""
    labels: set[str] = set()
    for path in datasets:
        for sample in read_dataset(path):
            if isinstance(sample, Sample) and sample.label:
                labels.update(_protected(sample.label))
    for path in tables:
        data = path.read_bytes()
        text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode("utf-8")
        for line in text.splitlines():
            fields = line.split("\t")
            labels.update(_protected(fields[1]) if len(fields) > 1 else ())
    return frozenset(labels)


def _protected(label: str) -> list[str]:
    """Both spellings of a label: normalised, and as its tokens were given."""
    spellings = [" ".join(label.split())]
    with contextlib.suppress(GryphoneError):  # a broken truth still has its own spelling
        spellings.append(" ".join(normalize(label, CONVENTION)))
    return spellings


def is_protected(tokens: Sequence[str], protected: Collection[str]) -> bool:
    """Whether a formula of four or more symbols equals a protected label."""
    return " ".join(tokens) in protected and len(sat_split(tokens)) >= PROTECTED_LENGTH


def as_written(tokens: Sequence[str]) -> list[str]:
    """One token for each visible sign: CROHME writes a norm with single bars."""
    return [part for token in tokens for part in ("||" if token == "\\|" else (token,))]


def formula_parts(tokens: Sequence[str]) -> Iterator[list[str]]:
    """Parts that are formulas themselves: sides of relations, and contents of groups."""
    depth = brackets = 0
    begin = 0
    groups: list[int] = []
    for at, token in enumerate(tokens):
        if token == "{":
            groups.append(at)
        elif token == "}" and groups:
            opened = groups.pop()
            if not groups and opened and tokens[opened - 1] not in "^_":
                yield list(tokens[opened + 1 : at])
        elif token in _OPEN or token in _CLOSE:
            brackets += 1 if token in _OPEN else -1
        elif token in _CUT_AT and not groups and brackets <= depth:
            yield list(tokens[begin:at])
            begin = at + 1
    if begin:
        yield list(tokens[begin:])


def clean_formulas(
    lines: Iterable[str],
    symbols: Collection[str],
    protected: Collection[str],
    dropped: Counter[str],
) -> Iterator[list[str]]:
    """Distinct normalised formulas of 2 to LONGEST symbols, all of them in `symbols`.

    Formulas above CUT_ABOVE symbols also give their parts. `dropped` counts the reasons.
    """
    seen: set[int] = set()
    for line in lines:
        try:
            plain = _OLD_WEIGHTS.sub(r"\\rm", _WEIGHTS.sub(r"\\mathrm", line))
            tokens = as_written(normalize(plain, CONVENTION))
        except GryphoneError:
            dropped["not readable as LaTeX"] += 1
            continue
        while tokens and tokens[-1] in ".,;":  # a paper's sentence goes on, a formula ends
            tokens.pop()
        parts = [tokens]
        if len(tokens) > CUT_ABOVE:
            parts += formula_parts(tokens)
        for part in parts:
            reason = _fault(part, symbols, protected, seen)
            if reason is None:
                yield part
            else:
                dropped[reason] += 1


def _fault(
    tokens: Sequence[str],
    symbols: Collection[str],
    protected: Collection[str],
    seen: set[int],
) -> str | None:
    """Why a formula cannot be used, or None; remembers what it has let through."""
    pairs = sat_split(tokens)
    if not 2 <= len(pairs) <= LONGEST:
        return "too short or too long"
    if any(symbol not in symbols for symbol, _ in pairs):
        return "a symbol without glyphs"
    if not _even(tokens):
        return "brackets cut in two"
    key = hash(tuple(tokens))
    if key in seen:
        return "seen before"
    if is_protected(tokens, protected):
        return "protected: in a validation or test set"
    seen.add(key)
    return None


def _even(tokens: Sequence[str]) -> bool:
    """Whether as many brackets open as close; an interval `( a , b ]` is fine."""
    opened = sum(token in _OPEN for token in tokens)
    return opened == sum(token in _CLOSE for token in tokens)


# Papers are poorer in these than what people write by hand.
_STRUCTURES = frozenset(words(r"\frac \sqrt \sum \int \lim \sin \cos \tan \log \prod \exp"))


def choose_lengths(formulas: Sequence[Sequence[str]], count: int) -> list[int]:
    """Indices of `count` formulas at most, drawn so that lengths spread around MEDIAN symbols."""
    lengths = [len(sat_split(tokens)) for tokens in formulas]
    totals = Counter(lengths)
    draw = random.Random(0)

    def wish(length: int) -> float:
        # Log-normal, as real labels are; 0.6 gives the 99th percentile of about 34 seen there.
        return exp(-0.5 * (log(length / MEDIAN) / 0.6) ** 2) / length

    # Efraimidis-Spirakis: the largest u^(1/w) are a sample without replacement by weight.
    keys = []
    for at, n in enumerate(lengths):
        rich = any(token in _STRUCTURES for token in formulas[at])
        # Lists are common in papers and rare in handwriting.
        commas = 0.5 ** min(sum(token == "," for token in formulas[at]), 3)
        weight = 1e4 * wish(n) / totals[n] * (STRUCTURED if rich else 1.0) * commas
        keys.append((draw.random() ** (1 / max(weight, 1e-9)), at))
    keys.sort(reverse=True)
    return sorted(at for _, at in keys[:count])
