"""A data set in, a report out: nothing is skipped, and what cannot be read is wrong and listed."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import numpy as np

from gryphone.config import Remasking
from gryphone.data.archive import members
from gryphone.data.datasets import read_dataset
from gryphone.data.samples import Sample, Unreadable, without_name
from gryphone.decoding import Decoded
from gryphone.errors import ConfigError, DataError, InkError, LatexError
from gryphone.ink import LONGEST_STROKES, Ink, typical_stroke
from gryphone.reading.inputs import Input, read_input
from gryphone.recognition.answer import Question, answers_of, refine_all, second_opinions
from gryphone.recognition.encoding import EncodedBatch
from gryphone.recognition.question import Ask
from gryphone.recognition.recognizer import Recognizer
from gryphone.scoring.graph import Graph, GraphScores, graph_of_latex, read_lg, score_graphs
from gryphone.scoring.metrics import RATES, Problem, Scores, score
from gryphone.scoring.metrics import Sample as Scored

T = TypeVar("T")
WINDOW, BATCH = 128, 16
GRAPH_RATES = ("exact", "le1", "le2")
GRAPH_TRUTHS = ("lg", "latex", "unreadable")  # where a truth's graph comes from


@dataclass(frozen=True)
class Item:
    """One sample to read: its truth, and its ink or the reason why there is none."""

    id: str
    truth: str
    input: Input | None
    problem: str = ""
    name: str = ""  # its file, relative to the data set


@dataclass(frozen=True)
class Evaluation:
    """Scores of one data set: as given, normalised, and by graph; the first run's in full."""

    name: str
    steps: int | str
    passes: float  # of the decoder for each sample and run, the mean
    seed: int
    views: int
    method: str  # or the kind of decoder, where that is no diffusion
    plain: bool
    unfinished: bool
    beam: int
    convention: str
    given: tuple[Scores, ...]  # one for each run
    normalized: tuple[Scores, ...]
    graphs: tuple[GraphScores, ...]
    graph_source: str  # "truth" or the name of the .lg archive
    graph_truths: Mapping[str, int]  # from where: counts by the names of GRAPH_TRUTHS
    unreadable: tuple[Problem, ...]
    seconds: float
    predictions: tuple[Scored, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `--json`: the keys of `gryphone score`, and `graph`.

        EM means after normalising both sides; the tokens as given are under `raw`.
        """
        normalized = self.normalized[0].to_dict()
        report = {**normalized, "convention": self.convention, "normalized": normalized}
        report["raw"] = self.given[0].to_dict()
        report["graph"] = asdict(self.graphs[0]) | {"truths": self.graph_source}
        report["graph"]["truths_from"] = dict(self.graph_truths)
        report |= {"dataset": self.name, "steps": self.steps, "seed": self.seed}
        report["passes"] = round(self.passes, 2)
        report |= {"views": self.views, "method": self.method, "plain": self.plain}
        report |= {"unfinished": self.unfinished, "beam": self.beam}
        report["unreadable"] = [asdict(p) for p in self.unreadable]
        report["seconds"] = round(self.seconds, 2)
        report["per_second"] = round(len(self.predictions) / max(self.seconds, 1e-9), 2)
        if len(self.given) > 1:
            report["runs"] = self.runs()
        return report

    def runs(self) -> dict[str, Any]:
        """Mean and deviation of every rate over the independent runs."""

        def spread(parts: Sequence[Any], names: Sequence[str]) -> dict[str, dict[str, float]]:
            table = {n: np.array([getattr(p, n) for p in parts]) for n in names}
            return {
                n: {"mean": float(x.mean()), "sd": float(x.std(ddof=1))} for n, x in table.items()
            }

        return {
            "count": len(self.given),
            **spread(self.normalized, RATES),
            "raw": spread(self.given, RATES),
            "graph": spread(self.graphs, GRAPH_RATES),
        }


def evaluate(
    recognizer: Recognizer,
    *paths: Path,
    steps: int | str | None = 10,
    limit: int | None = None,
    seed: int = 0,
    runs: int = 1,
    views: int = 1,
    method: str = "diffusion",
    plain: bool = False,
    unfinished: bool = False,
    remasking: Remasking | None = None,
    beam: int = 1,
    lg: Path | None = None,
    convention: str | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Evaluation:
    """Read every sample of a data set (the parts of one set) and score the answers.

    With several `runs` the first is what `recognize` answers; the others are independent of it and
    of each other for every sample. `plain` scores Algorithm 2 alone (see `Ask`).
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit is {limit}; it must be 1 or more")
    if twice := [path for path in paths if paths.count(path) > 1]:
        raise ConfigError(f"{twice[0]} is given twice; its samples would count twice")
    convention = convention or recognizer.checkpoint.convention
    ask = Ask(
        steps=steps,
        seed=seed,
        samples=runs,
        views=views,
        method=method,
        plain=plain,
        unfinished=unfinished,
        remasking=remasking,
        beam=beam,
    )
    files = {} if lg is None else label_graphs(lg, *paths, limit=limit)
    began = time.perf_counter()
    truths: list[Item] = []
    answers: list[tuple[str | None, ...]] = []
    passes = 0
    stream = itertools.islice(items(*paths), limit)
    while window := list(itertools.islice(stream, WINDOW)):
        read, taken = read_window(recognizer, window, ask)
        answers, passes = answers + read, passes + taken
        truths += [replace(i, input=None) for i in window]
        progress(len(truths))
    if not truths:
        raise DataError(f"{paths[0]}: holds no samples")
    seconds = time.perf_counter() - began
    # Label graphs go by stems, so before these are told apart.
    sources, graphs = zip(*(true_graph(t, files) for t in truths), strict=True)
    truths = told_apart(truths)
    per_run = [
        [Scored(t.id, t.truth, a[run]) for t, a in zip(truths, answers, strict=True)]
        for run in range(runs)
    ]
    kind = recognizer.checkpoint.config.kind
    return Evaluation(
        name=", ".join(map(str, paths)),
        steps="auto" if ask.auto else ask.total_steps,
        passes=passes / max(1, runs * sum(t.problem == "" for t in truths)),
        seed=seed,
        views=views,
        method=method if kind == "diffusion" else kind,
        plain=plain,
        unfinished=unfinished,
        beam=beam,
        convention=convention,
        given=tuple(score(samples) for samples in per_run),
        normalized=tuple(score(samples, convention) for samples in per_run),
        graphs=tuple(_score_graphs(samples, graphs) for samples in per_run),
        graph_source="truth" if lg is None else lg.name,
        graph_truths={name: sources.count(name) for name in GRAPH_TRUTHS},
        unreadable=tuple(Problem(t.id, t.problem) for t in truths if t.problem),
        seconds=seconds,
        predictions=tuple(per_run[0]),
    )


def items(*paths: Path) -> Iterator[Item]:
    """Every sample of a packed store, folder or archive, readable or not."""
    for sample in read_dataset(*paths):
        yield _item(sample)


def _item(sample: Sample | Unreadable) -> Item:
    if isinstance(sample, Unreadable):
        return Item(sample.name, "", None, without_name(sample.name, sample.error))
    problem, given = "", None
    if sample.label is None:
        problem = "has no truth to compare with"
    else:
        try:
            given = read_input(sample.image if sample.ink is None else sample.ink, sample.id)
        except InkError as error:
            problem = without_name(sample.id, str(error))
    return Item(sample.id, sample.label or "", given, problem, sample.name)


def told_apart(items: Sequence[Item]) -> list[Item]:
    """The same items under different ids: those that share one get their path, or a number."""
    ids = [item.id for item in items]
    paths = [str(PurePosixPath(item.name).with_suffix("")) if item.name else "" for item in items]
    for longer in (paths, [item.name for item in items]):
        shared = Counter(ids)
        ids = [more if more and shared[i] > 1 else i for i, more in zip(ids, longer, strict=True)]
    seen: Counter[str] = Counter()
    out = []
    for item, i in zip(items, ids, strict=True):
        seen[i] += 1
        out.append(replace(item, id=i if seen[i] == 1 else f"{i}#{seen[i]}"))
    return out


def chunks(rows: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Consecutive parts of at most `size` rows."""
    for begin in range(0, len(rows), size):
        yield rows[begin : begin + size]


def drawn_length(ink: Ink) -> float:
    """Drawn length in units of a typical stroke: what a sample costs the encoder."""
    strokes = ink.strokes
    longest = max(float(np.ptp(s, axis=0).max()) for s in strokes)
    unit = max(typical_stroke(strokes), longest / LONGEST_STROKES, 1e-9)
    drawn = sum(float(np.abs(np.diff(s, axis=0)).max(1).sum()) for s in strokes if len(s) > 1)
    return drawn / unit


def asked_together(
    recognizer: Recognizer, items: Sequence[Item], ask: Ask
) -> Iterator[tuple[list[int], list[Question]]]:
    """The places of what can be read, and the questions about it; like sizes are read together."""
    readable = [(place, item.input) for place, item in enumerate(items) if item.input is not None]
    readable.sort(key=lambda pair: drawn_length(pair[1].ink))
    for part in chunks(readable, max(1, BATCH // min(ask.decodes, 4))):
        batch = EncodedBatch.of(recognizer, [given for _, given in part])
        places = [place for place, _ in part]
        yield (
            places,
            [
                Question(batch, index, ask, name=items[place].id)
                for index, place in enumerate(places)
            ],
        )


def decode_all(
    recognizer: Recognizer, items: Sequence[Item], ask: Ask
) -> Iterator[tuple[int, list[Decoded]]]:
    """Place and decodes of what can be read."""
    for places, questions in asked_together(recognizer, items, ask):
        yield from zip(places, second_opinions(questions, refine_all(questions)), strict=True)


def read_window(
    recognizer: Recognizer, window: Sequence[Item], ask: Ask
) -> tuple[list[tuple[str | None, ...]], int]:
    """Answers of every run for each item, and the passes of the decoder for all of them.

    A single run is what `recognize` answers: with long rows in parts, and doubtful pictures turned
    or without what may not belong to them, whose own passes do not count.
    """
    answers: list[tuple[str | None, ...]] = [(None,) * ask.decodes] * len(window)
    passes = 0
    for places, questions in asked_together(recognizer, window, replace(ask, boxes=False)):
        decodes = refine_all(questions)
        passes += sum(d.passes for some in decodes for d in some)
        if ask.plain or ask.decodes > 1:
            heard = second_opinions(questions, decodes)
            tokens = [[recognizer.tokenizer.decode(d.ids) for d in some] for some in heard]
        else:
            tokens = [[[*result.tokens]] for result in answers_of(questions, decodes)]
        for place, runs in zip(places, tokens, strict=True):
            answers[place] = tuple(map(" ".join, runs))
    return answers, passes


def label_graphs(lg: Path, *paths: Path, limit: int | None = None) -> dict[str, bytes]:
    """The label graph files of an archive by their stems; one of the data set's must be there."""
    files = {m.stem: m.data for m in members(lg, lambda n: n.lower().endswith(".lg"))}
    if not files:
        raise DataError(f"{lg}: holds no .lg files")
    samples = itertools.islice(read_dataset(*paths), limit)
    # This stops at the first sample that has one: only a wrong archive is compared with all.
    if not any(isinstance(sample, Sample) and sample.id in files for sample in samples):
        raise DataError(
            f"{lg}: none of its {len(files)} label graphs ({next(iter(files))}.lg, ...) has the "
            f"name of a sample in {paths[0]}; give the archive of this data set"
        )
    return files


def true_graph(item: Item, files: Mapping[str, bytes]) -> tuple[str, Graph | None]:
    """A truth's graph from its label graph file, else from its LaTeX, and which it was."""
    try:
        if item.id in files:
            return "lg", read_lg(files[item.id].decode("utf-8", "replace"), item.id)
        if item.truth:
            return "latex", graph_of_latex(item.truth)
    except (LatexError, DataError):
        pass
    return "unreadable", None


def _score_graphs(samples: Sequence[Scored], graphs: Sequence[Graph | None]) -> GraphScores:
    """A truth without a graph counts as wrong, and is listed with the unreadable ones."""
    empty = Graph(())
    return score_graphs(
        (s.id, graph or empty, s.prediction if graph is not None else None)
        for s, graph in zip(samples, graphs, strict=True)
    )
