"""Stores of plain predictions: many runs of one network over one set, without its truths.

    python -m gryphone.studies.predictions sat=runs/sat --data packed/valid-2013.parquet --out DIR

A store is a compressed file of JSON lines: what the columns are (method, steps, run), then for each
sample its id, the distinct answers it got, and which of them each column gave. It is written batch
by batch, and a run that was stopped goes on; all tables are made from stores, on any machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gryphone.config import Remasking
from gryphone.data.archive import source_name
from gryphone.decoding import Request, run_key
from gryphone.errors import ConfigError, DataError, LatexError, TokenError, writing
from gryphone.latex.normalize import normalize
from gryphone.recognition.encoding import EncodedBatch
from gryphone.recognition.question import Ask
from gryphone.recognition.recognizer import Recognizer, load
from gryphone.release.common import first_difference, run
from gryphone.scoring.evaluate import Item, items
from gryphone.tokens import EMPTY, MASK_ID

# method, steps (recovery: where it begins; a rival: its beam), run
Column = tuple[str, int, int]
# "diffusion" remasks as the weights were trained; the next three are tried on any weights.
REMASKINGS = {
    "replace": Remasking(),
    "keep": Remasking(keep_visible=True),
    "schedule": Remasking(keep_visible=True, from_all=True),
    "authors": Remasking(keep_visible=True, apart=True, from_all=True),
    "from-left": Remasking(from_left=True),
}
# What mask-predict takes for the least confident, between its own choice and chance.
NOISES = {"noise-0.1": 0.1, "noise-0.5": 0.5, "noise-2": 2.0}
RECOVERIES = ("recover-masked", "recover-deleted")
WRITINGS = {"greedy": 1, "beam": 10}  # of weights that write one token after another: the beam
METHODS = ("diffusion", "mask-predict", *REMASKINGS, *NOISES, *RECOVERIES, *WRITINGS)
OPERATORS = (r"\frac", r"\sqrt", r"\int", r"\sum")
STEPS, RECORDED = (1, 2, 5, 10, 20, 50), 50
BEGINS = (1, 2, 5, 10, 15, 20, 25, 30, 40, 50)


@dataclass(frozen=True)
class Row:
    """One sample: its distinct answers, the one that each column gave, and those of each step."""

    id: str
    pool: tuple[tuple[str, ...], ...]
    answers: tuple[int, ...]
    trajectory: tuple[int, ...] = ()


@dataclass(frozen=True)
class Store:
    """The predictions of one network (`arm`) for one set."""

    arm: str
    set: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def runs(self, method: str, steps: int) -> list[int]:
        """The columns of independent runs; without the first, where all samples share a draw."""
        found = [k for k, (m, t, _) in enumerate(self.columns) if (m, t) == (method, steps)]
        return [k for k in found if self.columns[k][2] > 0] or found


def read_store(path: Path) -> Store:
    """Read a finished store."""
    try:
        text = lzma.decompress(path.read_bytes()).decode()
        head, *lines = map(json.loads, text.splitlines())
        names = head["vocabulary"]
        rows = [
            Row(
                line["id"],
                tuple(tuple(names[k] for k in answer) for answer in line["pool"]),
                tuple(line["answers"]),
                tuple(line.get("trajectory", ())),
            )
            for line in lines
        ]
        columns = tuple((m, t, r) for m, t, r in head["columns"])
        return Store(head["arm"], head["set"], columns, tuple(rows))
    except (OSError, lzma.LZMAError, ValueError, KeyError, IndexError) as error:
        raise DataError(f"{path}: is no store of predictions ({error}); make it anew") from error


def write_store(path: Path, store: Store) -> None:
    """Write a store in one move."""
    tokens = sorted({t for row in store.rows for answer in row.pool for t in answer})
    ids = {token: k for k, token in enumerate(tokens)}
    head = {"arm": store.arm, "set": store.set, "columns": store.columns, "vocabulary": tokens}
    lines: list[dict[str, Any]] = [head]
    for row in store.rows:
        pool = [[ids[t] for t in answer] for answer in row.pool]
        lines.append({"id": row.id, "pool": pool, "answers": row.answers})
        if row.trajectory:
            lines[-1]["trajectory"] = row.trajectory
    text = "".join(json.dumps(x, separators=(",", ":"), ensure_ascii=False) + "\n" for x in lines)
    with writing(path):
        fresh = path.with_name(f".{path.name}.tmp")
        fresh.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
        fresh.replace(path)


def plan_of(
    runs: int, *methods: str, steps: Sequence[int] = STEPS, begins: Sequence[int] = BEGINS
) -> tuple[Column, ...]:
    """The columns of some methods; what has no chance in it (T=1, mask-predict) is run once."""
    columns: list[Column] = []
    for method in methods or ("diffusion", "mask-predict"):
        if method not in METHODS:
            raise ConfigError(f"method {method!r} is unknown; use one of {', '.join(METHODS)}")
        if method in WRITINGS:
            columns.append((method, WRITINGS[method], 0))
            continue
        masks = [t for t in steps if t in (10, 50)]
        for t in masks if method == "mask-predict" else begins if method in RECOVERIES else steps:
            sure = method == "mask-predict" or (t == 1 and method not in RECOVERIES)
            columns += [(method, t, r) for r in ([0] if sure else range(1, runs + 1))]
    return tuple(columns)


def methods_of(recognizer: Recognizer) -> tuple[str, ...]:
    """What weights of a kind can be asked for."""
    diffuses = recognizer.checkpoint.config.kind == "diffusion"
    return ("diffusion", "mask-predict") if diffuses else tuple(WRITINGS)


def dump(
    recognizer: Recognizer,
    arm: str,
    data: Path,
    out: Path,
    columns: Sequence[Column],
    *,
    batch: int = 128,
    limit: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Path:
    """Predict a whole set plainly, all runs of a batch together; returns the store.

    After every batch what it found is kept beside it, so that a stopped dump goes on.
    """
    name = source_name(data).removesuffix(".parquet")
    recovers = any(method in RECOVERIES for method, _, _ in columns)
    path = out / f"predictions-{arm}-{name}{'-recovery' * recovers}.jsonl.xz"
    part = path.with_suffix(".part")
    out.mkdir(parents=True, exist_ok=True)
    head = {"arm": arm, "set": name, "columns": [list(column) for column in columns]}
    if path.exists():
        done = read_store(path)
        check_same(path, {**head, "columns": [list(c) for c in done.columns]}, head)
        return path
    rows = read_part(part, head)
    known = {row.id for row in rows}
    # Items of one id would be one row: sets with such ids have to be told apart by whoever packs.
    todo = (item for item in itertools.islice(items(data), limit) if item.id not in known)
    with writing(part), part.open("w") as file:
        file.write(json.dumps(head) + "\n")
        file.writelines(line_of(row) for row in rows)
        file.flush()
        while some := list(itertools.islice(todo, batch)):
            found = predict(recognizer, some, columns)
            rows += found
            file.writelines(line_of(row) for row in found)
            file.flush()
            progress(len(rows))
    write_store(path, Store(arm, name, tuple(columns), tuple(rows)))
    part.unlink()
    return path


def read_part(part: Path, head: dict[str, Any]) -> list[Row]:
    """What a stopped dump has kept; its last line may be half written."""
    text = part.read_text() if part.exists() else ""
    if "\n" not in text:
        return []
    first, *lines = text.splitlines()
    check_same(part, json.loads(first), head)
    rows = []
    for line in lines:
        try:
            name, pool, answers, trajectory = json.loads(line)
        except ValueError:
            break
        rows.append(Row(name, tuple(map(tuple, pool)), tuple(answers), tuple(trajectory)))
    return rows


def line_of(row: Row) -> str:
    return json.dumps([row.id, row.pool, row.answers, row.trajectory]) + "\n"


def check_same(path: Path, before: Any, now: Any) -> None:
    """Refuse to go on with predictions of another plan."""
    found = first_difference(before, now)
    if found is not None:
        where, old, new = found
        raise ConfigError(
            f"{path}: was begun with {where} {old!r}, now it is {new!r}; choose another --out"
        )


def predict(recognizer: Recognizer, some: Sequence[Item], columns: Sequence[Column]) -> list[Row]:
    """The rows of some samples; one that cannot be read has empty answers, which are wrong."""
    readable = [k for k, item in enumerate(some) if item.input is not None]
    pools: list[dict[tuple[str, ...], int]] = [{} for _ in some]
    answers: list[list[int]] = [[] for _ in some]
    trajectories: list[list[int]] = [[] for _ in some]

    def put(k: int, ids: np.ndarray) -> int:
        tokens = tuple(recognizer.tokenizer.decode(ids))
        return pools[k].setdefault(tokens, len(pools[k]))

    given = [item.input for item in some if item.input is not None]
    batch = EncodedBatch.of(recognizer, given) if given else None
    for (method, steps), group in itertools.groupby(columns, lambda c: c[:2]):
        runs = [r for _, _, r in group]
        known = {k: broken(recognizer, some[k].truth, method) for k in readable}
        places = [k for k in readable if method not in RECOVERIES or known[k] is not None]
        for k in set(range(len(some))) - set(places):  # unreadable, or nothing to recover
            answers[k] += [pools[k].setdefault((), len(pools[k]))] * len(runs)
        if batch is None or not places:
            continue
        keys = np.array([run_key(r, some[k].id) for k in places for r in runs])
        owners = np.array([readable.index(k) for k in places for _ in runs])
        request = request_of(recognizer, method, steps, keys)
        if method in RECOVERIES:
            first = [ids for k in places for ids in [known[k]] * len(runs) if ids is not None]
            request = replace(request, first=first)
        decoded = iter(batch.refine(owners, request))
        for k in places:
            answers[k] += [put(k, next(decoded).ids) for _ in runs]
    if batch is not None and any((m, t) == ("diffusion", RECORDED) for m, t, _ in columns):
        for k, ids in record(recognizer, batch, [some[k].id for k in readable]):
            trajectories[readable[k]].append(put(readable[k], ids))
    return [
        Row(item.id, tuple(pools[k]), tuple(answers[k]), tuple(trajectories[k]))
        for k, item in enumerate(some)
    ]


def request_of(recognizer: Recognizer, method: str, steps: int, keys: np.ndarray) -> Request:
    """What a column asks for; looks are not kept, as nothing is weighed."""
    if method in WRITINGS:
        request = recognizer.request(Ask(steps=1, plain=True, beam=steps), keys)
        return replace(request, options=replace(request.options, keep=False))
    total = RECORDED if method in RECOVERIES else steps
    decoder = "mask-predict" if method in ("mask-predict", *NOISES) else "diffusion"
    ask = Ask(steps=total, plain=True, method=decoder, remasking=REMASKINGS.get(method))
    request = recognizer.request(ask, keys)
    begin, noise = steps if method in RECOVERIES else None, NOISES.get(method, 0.0)
    options = replace(request.options, keep=False, begin=begin, noise=noise)
    return replace(request, options=options)


def record(
    recognizer: Recognizer, batch: EncodedBatch, names: Sequence[str]
) -> Iterator[tuple[int, np.ndarray]]:
    """Place and answer of every sample after each step, of its first independent run."""
    steps: list[tuple[int, np.ndarray]] = []

    def watch(step: int, canvas: int, ids: np.ndarray, masked: np.ndarray) -> None:
        over = np.flatnonzero((ids[:, 0] == 0) | (ids[:, 0] == MASK_ID))
        steps.append((canvas, ids[: over[0]] if len(over) else ids))

    keys = np.array([run_key(1, name) for name in names])
    request = replace(request_of(recognizer, "diffusion", RECORDED, keys), watch=watch)
    batch.refine(np.arange(len(names)), request)
    return iter(steps)


def broken(recognizer: Recognizer, truth: str, method: str) -> np.ndarray | None:
    """What a recovery begins with: a truth without fraction, root, integral and sum signs, (n, S).

    Arguments and braces stay. A place is masked, or deleted (where it carries braces, an empty
    symbol goes on carrying them). None: there is no such sign, or no recovery is asked for.
    """
    tokenizer = recognizer.tokenizer
    if method not in RECOVERIES:
        return None
    try:
        tokens = normalize(truth, recognizer.checkpoint.convention)
        ids: np.ndarray = tokenizer.encode(tokens).astype(np.int64)
    except (TokenError, LatexError):
        return None
    if len(ids) >= recognizer.checkpoint.config.length:
        return None
    symbols = tokenizer.vocabularies[0]
    wanted = [symbols.id(name) for name in OPERATORS if name in symbols]
    gone = np.isin(ids[:, 0], wanted)
    if not gone.any():
        return None
    if method == "recover-masked":
        return np.where(gone[:, None], MASK_ID, ids)
    if tokenizer.scheme == "sat":
        carries = gone & (ids[:, 1] != tokenizer.vocabularies[1].id(""))
        ids[carries, 0] = symbols.id(EMPTY)
        gone &= ~carries
    left: np.ndarray = ids[~gone]
    return left


def named_weights(texts: Sequence[str]) -> dict[str, Path]:
    """`ARM=DIR` texts; a folder alone has its own name."""
    pairs = [text.partition("=") for text in texts]
    return {
        (name if mark else Path(name).resolve().name): Path(path if mark else name)
        for name, mark, path in pairs
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", nargs="+", help="NAME=DIR of a checkpoint")
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="packed stores")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--methods", nargs="+", help="by default what fits the weights")
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)

    def tell(done: int) -> None:
        print(f"{done} samples", flush=True)

    for arm, path in named_weights(options.weights).items():
        recognizer = load(path, options.device)
        methods = options.methods or methods_of(recognizer)
        columns = plan_of(options.runs, *methods, steps=options.steps)
        for data in options.data:
            sizes = {"batch": options.batch, "limit": options.limit}
            stored = dump(recognizer, arm, data, options.out, columns, **sizes, progress=tell)
            print(stored, flush=True)


if __name__ == "__main__":
    run(main)
