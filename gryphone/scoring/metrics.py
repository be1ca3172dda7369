"""Scores of predicted LaTeX against the truth: EM, <=1/2/3, CER and SER, with intervals.

Definitions, in percent of all truths; nothing is left out of a denominator:

- *distance* is the Levenshtein distance between two token sequences;
- *EM* is the share of samples with distance 0, *<=k* the share with distance at most k;
- *CER* is the sum of all distances over the sum of all truth lengths, in tokens;
- *SER* is the share of predictions with an unmatched brace.

A missing or unreadable prediction is wrong in every one of them: its distance is the whole truth.
"""

import lzma
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gryphone.errors import DataError, LatexError
from gryphone.latex.lexer import tokenize
from gryphone.latex.normalize import normalize, rules_of
from gryphone.latex.validity import is_balanced

RATES = ("em", "le1", "le2", "le3", "cer", "ser")
# What people call the columns of a score file.
ID_NAMES, OTHER_NAMES = {"id", "name", "file"}, {"truth", "label", "latex", "prediction", "pred"}


@dataclass(frozen=True)
class Sample:
    """One line of a score file; an absent prediction is None."""

    id: str
    truth: str
    prediction: str | None


@dataclass(frozen=True)
class Problem:
    """A sample that could not be compared the ordinary way, and why."""

    id: str
    reason: str


@dataclass(frozen=True)
class Scores:
    """Rates in percent, their bootstrap intervals, and the samples that need a look."""

    count: int
    em: float
    le1: float
    le2: float
    le3: float
    cer: float
    ser: float
    intervals: Mapping[str, tuple[float, float]]
    problems: tuple[Problem, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {
            "count": self.count,
            **{name: getattr(self, name) for name in RATES},
            "intervals": {name: list(pair) for name, pair in self.intervals.items()},
            "problems": [{"id": p.id, "reason": p.reason} for p in self.problems],
        }


@dataclass(frozen=True)
class Paired:
    """Two systems on the same samples: rates in percent, B minus A, and who got what right."""

    count: int
    a: Mapping[str, float]
    b: Mapping[str, float]
    difference: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]  # of the difference
    both: int
    only_a: int
    only_b: int
    p: float  # McNemar's exact test, two-sided: systems that are equally good differ this much


@dataclass(frozen=True)
class Compared:
    """One sample, measured."""

    distance: int
    length: int  # tokens of the truth
    wrong: bool  # missing or unreadable: in no rate of right answers, whatever the distance
    broken: bool  # has an unmatched brace


def read_samples(path: Path) -> list[Sample]:
    """Read `id<TAB>truth<TAB>prediction` lines, `.xz` too; a missing third column is a miss.

    A first line with the names of the columns is left out.
    """
    try:
        data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        text = data.decode("utf-8-sig")
    except (OSError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); give UTF-8 .tsv or .tsv.xz") from error
    samples: list[Sample] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        place = f"{path}, line {number}"
        fields = line.rstrip("\r").split("\t")
        if not line.strip() or (number == 1 and _is_header(fields, place)):
            continue
        if len(fields) not in (2, 3):
            shape = "write id<TAB>truth<TAB>prediction"
            raise DataError(f"{place}: {len(fields)} columns; {shape}")
        if fields[0] in lines:
            raise DataError(f"{place}: id {fields[0]!r} was on line {lines[fields[0]]}; keep one")
        lines[fields[0]] = number
        prediction = fields[2] if len(fields) == 3 and fields[2].strip() else None
        samples.append(Sample(fields[0], fields[1], prediction))
    if not samples:
        raise DataError(f"{path}: holds no samples; write id<TAB>truth<TAB>prediction lines")
    return samples


def _is_header(fields: Sequence[str], place: str) -> bool:
    """Whether a first line names the columns; one that only may do so is an error."""
    identity, *others = (field.strip().lower() for field in fields)
    named = not OTHER_NAMES.isdisjoint(others)
    if identity == "id" and not named:
        raise DataError(
            f"{place}: is {fields[0]!r} the head of a column? Name all three "
            "id<TAB>truth<TAB>prediction, or remove the line"
        )
    return identity in ID_NAMES and named


def read_pair(a: Path, b: Path, common: bool = False) -> tuple[list[Sample], list[Sample]]:
    """The samples of two score files, those of B in the order of A; both must have the same.

    With `common` what only one file has is left out.
    """
    ours, theirs = ({s.id: s for s in read_samples(path)} for path in (a, b))
    shared = [i for i in ours if i in theirs]
    if not shared:
        raise DataError(f"{a} and {b} have no id in common; give predictions for one data set")
    for path, lost in ((b, ours.keys() - theirs), (a, theirs.keys() - ours)):
        if lost and not common:
            first = next(i for i in (*ours, *theirs) if i in lost)
            raise DataError(
                f"{path}: lacks {len(lost)} ids of the other file, the first is {first!r}; "
                "--common compares the shared ones"
            )
    for i in shared:
        if ours[i].truth != theirs[i].truth:
            raise DataError(
                f"the truth of {i!r} is {ours[i].truth!r} in {a} and {theirs[i].truth!r} in {b}; "
                "give predictions for one data set"
            )
    return [ours[i] for i in shared], [theirs[i] for i in shared]


def edit_distance(truth: Sequence[str], prediction: Sequence[str]) -> int:
    """Levenshtein distance between token sequences."""
    from rapidfuzz.distance import Levenshtein

    return int(Levenshtein.distance(truth, prediction))


def are_spaced(samples: Iterable[Sample]) -> bool:
    """Whether every truth is written as tokens with spaces in between."""
    return all(_lexed(sample.truth) == sample.truth.split() for sample in samples)


def compare(
    sample: Sample, convention: str = "none", spaced: bool = False
) -> tuple[Compared, Problem | None]:
    """Measure one sample, both sides spelt by the convention.

    With `none` the tokens are those given: split at spaces where the file is `spaced`, else lexed.
    What cannot be normalised is compared by those tokens too, and reported.
    """

    def plain(source: str) -> list[str]:
        source = source.strip().strip("$").strip()  # delimiters, not mathematics
        # A compact answer (`x^{2}`, as our own commands print) has no spaces to split at.
        return source.split() if spaced and " " in source else tokenize(source)

    if _lexed(sample.truth) is None or not sample.truth.strip():
        return Compared(1, 1, True, False), Problem(sample.id, "unreadable truth")
    truth, truth_problem = _spell(sample.truth, convention, plain)
    size = len(truth)
    if sample.prediction is None:
        return Compared(size, size, True, True), Problem(sample.id, "no prediction")
    if _lexed(sample.prediction) is None:
        return Compared(size, size, True, True), Problem(sample.id, "unreadable prediction")
    predicted, problem = _spell(sample.prediction, convention, plain)
    if truth_problem:
        # Two sides in different spellings would never agree: take both as they stand.
        predicted = plain(sample.prediction)
        problem = f"truth not normalised: {truth_problem}"
    elif problem:
        problem = f"prediction not normalised: {problem}"
    found = Problem(sample.id, problem) if problem else None
    distance = edit_distance(truth, predicted)
    return Compared(distance, size, False, not is_balanced(predicted)), found


def _lexed(source: str) -> list[str] | None:
    try:
        return tokenize(source)
    except LatexError:
        return None


def _spell(
    source: str, convention: str, plain: Callable[[str], list[str]]
) -> tuple[list[str], str]:
    """Normalised tokens, or the plain ones and the reason why they are not normalised."""
    if convention == "none":
        return plain(source), ""
    try:
        tokens = normalize(source, convention)
    except LatexError as error:
        return plain(source), str(error)
    # A label of nothing but spacing would vanish from the denominator.
    return (tokens, "") if tokens else (plain(source), "nothing is left of it")


def score(
    samples: Sequence[Sample], convention: str = "none", draws: int = 1000, seed: int = 0
) -> Scores:
    """Score samples as given (`none`) or with both sides normalised by a convention."""
    table, problems = _measure(samples, convention)
    intervals = _intervals(_resampled(table, draws, seed))
    return Scores(len(samples), **_named(table), intervals=intervals, problems=problems)


def score_pair(
    a: Sequence[Sample],
    b: Sequence[Sample],
    convention: str = "none",
    draws: int = 1000,
    seed: int = 0,
) -> Paired:
    """Compare two systems on the same samples, in the same order."""
    if [(s.id, s.truth) for s in a] != [(s.id, s.truth) for s in b]:
        raise DataError("two systems can be compared on the same ids and truths only")
    tables = [_measure(samples, convention)[0] for samples in (a, b)]
    # The same draws for both: what makes a sample hard for the two systems cancels out.
    drawn = [_resampled(table, draws, seed) for table in tables]
    rates_a, rates_b = map(_named, tables)
    right_a, right_b = (table[:, 0] > 0 for table in tables)
    only_a, only_b = int((right_a & ~right_b).sum()), int((right_b & ~right_a).sum())
    return Paired(
        count=len(a),
        a=rates_a,
        b=rates_b,
        difference={name: rates_b[name] - rates_a[name] for name in RATES},
        intervals=_intervals(drawn[1] - drawn[0]),
        both=int((right_a & right_b).sum()),
        only_a=only_a,
        only_b=only_b,
        p=mcnemar(only_a, only_b),
    )


def mcnemar(only_a: int, only_b: int) -> float:
    """How likely a fair coin deals out the samples that one system alone got right so unevenly."""
    tosses, term, tail = only_a + only_b, 1, 0
    for heads in range(min(only_a, only_b) + 1):
        tail += term
        term = term * (tosses - heads) // (heads + 1)
    return min(1.0, 2 * tail / (1 << tosses))


def _measure(
    samples: Sequence[Sample], convention: str
) -> tuple[npt.NDArray[np.float64], tuple[Problem, ...]]:
    """The table (n, 8) of all samples, and those that need a look."""
    if not samples:
        raise DataError("nothing to score; give at least one sample")
    rules_of(convention)
    spaced = are_spaced(samples)
    results = [compare(sample, convention, spaced) for sample in samples]
    problems = tuple(problem for _, problem in results if problem is not None)
    return _table([compared for compared, _ in results]), problems


def _table(compared: Sequence[Compared]) -> npt.NDArray[np.float64]:
    """(n, 8): right within 0, 1, 2, 3 edits; distance; truth length; broken; one."""
    rows = [
        [*(not c.wrong and c.distance <= k for k in range(4)), c.distance, c.length, c.broken, 1]
        for c in compared
    ]
    return np.array(rows, dtype=np.float64)


def _rates(sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(..., 8) sums to (..., 6) rates in percent, in the order of RATES."""
    count = sums[..., 7:8]
    within, broken = sums[..., :4] / count, sums[..., 6:7] / count
    errors = sums[..., 4:5] / sums[..., 5:6]
    return np.asarray(100 * np.concatenate([within, errors, broken], axis=-1))


def _named(table: npt.NDArray[np.float64]) -> dict[str, float]:
    return dict(zip(RATES, _rates(table.sum(axis=0)).tolist(), strict=True))


def _resampled(table: npt.NDArray[np.float64], draws: int, seed: int) -> npt.NDArray[np.float64]:
    """(draws, 6): the rates of as many samples, drawn with replacement."""
    generator = np.random.default_rng(seed)
    n = len(table)
    sums = [np.bincount(generator.integers(n, size=n), minlength=n) @ table for _ in range(draws)]
    return _rates(np.reshape(sums, (draws, 8)))


def _intervals(drawn: npt.NDArray[np.float64]) -> dict[str, tuple[float, float]]:
    """Where 95 % of the draws (n, 6) lie; nothing without draws."""
    if not len(drawn):
        return {}
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    return {name: (float(low[k]), float(high[k])) for k, name in enumerate(RATES)}
