"""More files than one machine reads: Ray Data shares them out, and shards of results are resumable.

A batch of inputs is one shard, named after what it answers and put in its place by one move. So
the shards are all that has to be known to go on, and a batch that Ray gives out again, because a
process or a machine was lost, finds its shard there or makes the same one.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import pickle
import platform
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gryphone.checkpoint import WEIGHTS
from gryphone.errors import ConfigError, DataError, GryphoneError, InkError, need, writing
from gryphone.reading.formats import readers
from gryphone.reading.inputs import LARGEST_FILE, Input, expand, normal_path
from gryphone.recognition.batch import (
    REASONS,
    UNSURE,
    BatchReport,
    Stamp,
    answered,
    fingerprint,
    hold,
    line_of,
    read_file,
    recognize_read,
    settings_of,
    stamp_of,
)
from gryphone.recognition.question import Ask
from gryphone.recognition.recognizer import load

if TYPE_CHECKING:
    import pyarrow as pa

SHARD = 256  # inputs of a shard: so much is done again where a process is lost
TRIES = 4  # of a batch whose process or machine is lost; after them it is to blame itself
PER_GPU = 4  # processes that share one: each prepares inks slower than it reads them
KINDS = ("jsonl", "parquet")
NAMES, CONTENTS = ("file", "id", "name"), ("strokes", "image", "bytes")  # columns, as looked for
KEY = 16  # bytes that stand for a finished input


class Read(NamedTuple):
    """One input on its way: what it is called, its state, and what it holds or why nothing."""

    name: str
    stamp: Stamp | None
    input: Input | str


@dataclass(frozen=True)
class Job:
    """What every process of a run is told."""

    ask: Ask
    weights: Path | None = None
    device: str = "cpu"
    names: tuple[str, ...] = ("file",)  # columns that together, with #, name an input
    content: str | None = None  # the column that holds it; None: a name is that of a file
    done: Any = None  # keys of what is finished, in order: an object of Ray
    out: Path = Path()
    kind: str = "jsonl"
    traced: bool = False  # rows come from a `Reader`, and from nowhere else: they are unpickled


class Reader:
    """Reads and traces the inputs of a table, but for those that are done."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.done = np.empty(0, f"S{KEY}")
        if job.done is not None:
            import ray

            self.done = ray.get(job.done)

    def __call__(self, table: pa.Table) -> pa.Table:
        import pyarrow as pa

        rows = [
            {"name": os.fsencode(r.name), "stamp": r.stamp, "input": pickle.dumps(r.input)}
            for r in self.read(table)
        ]
        types = (pa.binary(), pa.list_(pa.int64()), pa.binary())
        schema = pa.schema(zip(Read._fields, types, strict=True))
        return pa.Table.from_pylist(rows, schema=schema)

    def read(self, table: pa.Table) -> Iterable[Read]:
        """What the rows hold; rows that this class has read before are as they were."""
        if self.job.traced:
            for row in table.to_pylist():
                yield Read(os.fsdecode(row["name"]), row["stamp"], pickle.loads(row["input"]))
            return
        for row in table.to_pylist():
            name = "#".join(_text(row[column]) for column in self.job.names)
            stamp = None if self.job.content else stamp_of(Path(name))
            if not self.is_done(key_of(name, stamp)):
                yield Read(name, stamp, self.input_of(name, row))

    def is_done(self, key: bytes) -> bool:
        """Whether an earlier run has answered it."""
        place = np.searchsorted(self.done, np.array(key, self.done.dtype))
        return bool(place < len(self.done) and self.done[place] == key.rstrip(b"\0"))

    def input_of(self, name: str, row: dict[str, Any]) -> Input | str:
        """What a cell of a table, a file, or an object behind an address holds."""
        if self.job.content is not None:
            content = row[self.job.content]
            if isinstance(content, dict):  # a picture as Hugging Face's `datasets` packs it
                content = content.get("bytes")
            return read_file(content.encode() if isinstance(content, str) else content, name)
        if "://" not in name:
            return read_file(Path(name))
        import fsspec

        try:
            with fsspec.open(name, "rb") as file:
                return read_file(file.read(LARGEST_FILE + 1), name)
        except Exception as error:  # every store has its own
            return f"{name}: cannot be read: {type(error).__name__}: {error}"


class Recognise:
    """Answers the inputs of a table, each with one row; loads its recogniser once."""

    def __init__(self, job: Job) -> None:
        self.job, self.reader = job, Reader(job)
        self.recognizer = load(job.weights, job.device, threads=1)
        self.settings = settings_of(job.ask, fingerprint(job.weights or WEIGHTS))

    def __call__(self, table: pa.Table) -> pa.Table:
        return _table(self.lines(list(self.reader.read(table))))

    def lines(self, reads: Sequence[Read]) -> list[str]:
        """The lines of results; inks of a length are looked at together."""
        reads = sorted(reads, key=_length)
        pairs = [(Path(read.name), read.input) for read in reads]
        answers = (answer for _, answer in recognize_read(self.recognizer, pairs, self.job.ask))
        return [
            line_of(read.name, answer, self.settings, read.stamp)
            for read, answer in zip(reads, answers, strict=True)
        ]


class Shards(Recognise):
    """The same, written to a folder; what is left is one row that counts."""

    def __call__(self, table: pa.Table) -> dict[str, list[Any]]:
        reads = list(self.reader.read(table))
        if not reads:
            return _count([])
        keys = b"".join(sorted(key_of(read.name, read.stamp) for read in reads))
        name = hashlib.blake2b(keys, digest_size=KEY).hexdigest()
        shard = self.job.out / f"part-{name}.{self.job.kind}"
        if shard.exists():  # of a process that was lost after its work
            return _count(read_shard(shard))
        tries = self.job.out / f".part-{name}.tries"
        with writing(self.job.out), tries.open("ab") as file:
            if file.tell() >= TRIES:
                raise DataError(
                    f"{reads[0].name} and {len(reads) - 1} others: their process died {TRIES} "
                    "times, perhaps for want of memory; use fewer --workers, or leave them out"
                )
            file.write(b".")
        lines = self.lines(reads)
        write_shard(shard, lines)
        tries.unlink(missing_ok=True)
        return _count(lines)


def recognize_dataset(
    dataset: Any,
    ask: Ask | None = None,
    *,
    names: tuple[str, ...] = ("file",),
    content: str | None = None,
    weights: Path | None = None,
    device: str = "cpu",
    actors: int = 0,
    batch: int = SHARD,
) -> Any:
    """A Ray data set with a row of results for each of its inputs.

    The columns `names` name an input, together. It is a file, or what the column `content` holds:
    the bytes of a file, strokes, or JSON of strokes. The rows have `file`, `latex` with its
    `confidence` or the `error`, and as `json` all that there is to say.
    """
    return _mapped(
        dataset, Recognise, Job(ask or Ask(), weights, device, names, content), actors, batch
    )


def run_bulk(
    sources: Sequence[str],
    out: Path,
    ask: Ask,
    *,
    weights: Path | None = None,
    device: str = "cpu",
    actors: int = 0,
    kind: str = "jsonl",
    shard: int = SHARD,
    progress: Any = lambda done: None,
) -> BatchReport:
    """Write shards of results to the folder `out`, which all machines see; again goes on."""
    began = time.perf_counter()
    if kind not in KINDS:
        raise ConfigError(f"shards are {' or '.join(KINDS)}, not {kind}")
    start_ray()
    out = Path(normal_path(out))
    numbers: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    with writing(out), ExitStack() as held:
        out.mkdir(parents=True, exist_ok=True)
        hold(out / ".lock", held)
        dataset, names, content = read_sources(names_of(sources, out), shard)
        settings = settings_of(ask, fingerprint(weights or WEIGHTS))
        before, done = _finished(out, settings)
        job = Job(ask, weights, device, names, content, done, out, kind)
        for row in _rows(_mapped(dataset, Shards, job, actors, shard)):
            reasons.update(row.pop("reasons"))
            numbers.update(row)
            progress(before + numbers["files"])
    return BatchReport(
        files=before + numbers["files"],
        before=before,
        recognized=numbers["files"] - reasons.total(),
        errors=reasons.total(),
        unsure=numbers["unsure"],
        warned=numbers["warned"],
        seconds=time.perf_counter() - began,
        reasons=tuple(reasons.most_common(REASONS)),
    )


def start_ray() -> None:
    """Join the cluster that RAY_ADDRESS or `ray start` names, or start one of this machine."""
    need("ray", "ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    import ray

    if not ray.is_initialized():
        ray.init(logging_level="warning", log_to_driver=False)
    # Or an error of ours would come back as text of Ray's.
    ray.data.DataContext.get_current().raise_original_map_exception = True


def names_of(sources: Sequence[str], out: Path) -> list[str]:
    """The files of folders, patterns and addresses that fsspec knows, each once; results in the
    folder `out` that lie among them are no input."""
    names = dict.fromkeys(name for source in sources for name in _files_of(source))
    return [name for name in names if not name.startswith(f"{out}{os.sep}")]


def read_sources(
    names: Sequence[str], shard: int = SHARD
) -> tuple[Any, tuple[str, ...], str | None]:
    """A data set of files, or of the rows of Parquet files, with the columns that name an input
    and the one that holds it.

    Files come in blocks of a shard, the same ones in every run.
    """
    import pyarrow as pa
    import ray

    stores = [name for name in names if name.endswith(".parquet")]
    if not stores:
        encoded = [os.fsencode(name) for name in names]
        blocks = [encoded[i : i + shard] for i in range(0, len(encoded), shard)]
        tables = [pa.table({"file": block}) for block in blocks]
        return ray.data.from_arrow(tables), ("file",), None
    if len(stores) < len(names):
        other = next(name for name in names if name not in stores)
        raise ConfigError(f"{other} is no Parquet, {stores[0]} is; read them in two runs")
    dataset = ray.data.read_parquet(stores, include_paths=True, include_row_hash=True, num_cpus=0.1)
    there = dataset.schema().names
    content = next((column for column in CONTENTS if column in there), None)
    if content is None:
        raise DataError(
            f"{stores[0]}: has the columns {', '.join(there)}; inputs are in one that is called "
            f"{' or '.join(CONTENTS)}"
        )
    name = next((column for column in NAMES if column in there), "row_hash")
    return dataset.select_columns(["path", name, content]), ("path", name), content


def _files_of(source: str) -> list[str]:
    if "://" not in source:
        stores = sorted(Path(source).rglob("*.parquet")) if Path(source).is_dir() else []
        return [normal_path(path) for path in stores or expand([source])]
    import fsspec

    store, path = fsspec.core.url_to_fs(source)
    found = store.glob(path) if glob.has_magic(path) else [path]
    if store.isdir(path):
        known = (*readers(), ".parquet")
        found = [p for p in store.find(path) if p.lower().endswith(known)]
    if not found:
        raise InkError(f"{source}: holds no ink, image or Parquet")
    return [store.unstrip_protocol(p) for p in found]


def _mapped(dataset: Any, work: type, job: Job, actors: int, batch: int) -> Any:
    """Batches of a data set through pools of processes."""
    import ray

    there = ray.cluster_resources()
    cpus, gpus = int(there.get("CPU", 1)), int(there.get("GPU", 0))

    def through(dataset: Any, stage: type, job: Job, size: int, **needs: float) -> Any:
        return dataset.map_batches(
            stage,
            fn_constructor_args=(job,),
            batch_size=batch,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=size),
            **needs,
        )

    if job.device.partition(":")[0] == "cpu":
        # One process that reads and answers keeps its core busy, whichever takes longer; the tenth
        # that is left is for those who read Parquet. (Pools grow: with all cores taken at once,
        # nobody could list what there is to read.)
        return through(dataset, work, job, actors or cpus, num_cpus=0.9)
    if not gpus:
        raise ConfigError(f"device {job.device}: no machine of the cluster has a GPU; use cpu")
    per_gpu = -(-actors // gpus) or PER_GPU
    dataset = through(dataset, Reader, job, cpus, num_cpus=0.5)
    job = replace(job, traced=True)
    return through(dataset, work, job, per_gpu * gpus, num_cpus=0.4, num_gpus=1 / per_gpu)


def _rows(dataset: Any) -> Iterable[dict[str, Any]]:
    """The rows of a data set; an error of ours that ended a process ends this one."""
    from ray.exceptions import RayError

    try:
        yield from dataset.iter_rows()
    except RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, GryphoneError):
            raise cause from None
        said = str(error).strip().splitlines()[-1]
        raise DataError(f"Ray gave up: {said}; the same command goes on") from error


def key_of(name: str, stamp: Stamp | None) -> bytes:
    """What stands for an input in this state."""
    text = json.dumps([name, stamp]).encode()
    return hashlib.blake2b(text, digest_size=KEY).digest()


def _finished(out: Path, settings: dict[str, Any]) -> tuple[int, Any]:
    """The keys of what the shards answer, as an object of Ray, and how many they are."""
    import ray

    for left in out.glob(".part-*"):  # by a process that was killed as it wrote
        left.unlink()
    shards = sorted(path for kind in KINDS for path in out.glob(f"part-*.{kind}"))
    keys: list[bytes] = []
    if shards:
        paths = ray.data.from_items([str(path) for path in shards])
        found = paths.map_batches(_keys_of, fn_args=(settings,), batch_size=16)
        keys = [row["key"] for row in _rows(found)]
    return len(keys), ray.put(np.sort(np.array(keys, f"S{KEY}")))


def _keys_of(batch: dict[str, Any], settings: dict[str, Any]) -> dict[str, list[bytes]]:
    keys: list[bytes] = []
    for shard in map(Path, batch["item"]):
        lines = read_shard(shard)
        fresh = [
            line
            for number, line in enumerate(lines, 1)
            if answered(
                line.encode(errors="backslashreplace"),
                f"{shard}, line {number}",
                settings,
                lambda name: stamp_of(Path(name)),
            )
        ]
        if len(fresh) < len(lines):  # with an error, or about what a file was before
            write_shard(shard, fresh)
        keys += [key_of(row["file"], row["stamp"]) for row in map(json.loads, fresh)]
    return {"key": keys}


def read_shard(shard: Path) -> list[str]:
    """The lines of results in a shard."""
    if shard.suffix == ".jsonl":
        with shard.open(encoding="utf-8", newline="\n") as file:  # names hold other line ends
            return list(file)
    import pyarrow.parquet as pq

    lines: list[str] = pq.read_table(shard, columns=["json"])["json"].to_pylist()
    return lines


def write_shard(shard: Path, lines: Sequence[str]) -> None:
    """Put a shard in its place, whole; without lines there is none."""
    if not lines:
        shard.unlink(missing_ok=True)
        return
    fresh = shard.with_name(f".{shard.name}.{platform.node()}-{os.getpid()}")
    with writing(shard.parent, "make room; the same command goes on"):
        try:
            with fresh.open("wb") as file:
                if shard.suffix == ".jsonl":
                    file.writelines(line.encode(errors="backslashreplace") for line in lines)
                else:
                    import pyarrow.parquet as pq

                    pq.write_table(_table(lines), file)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(shard)
        finally:
            fresh.unlink(missing_ok=True)


def _table(lines: Sequence[str]) -> pa.Table:
    """Lines of results with what is mostly asked for as columns."""
    import pyarrow as pa

    names = {"file": pa.string(), "error": pa.string(), "latex": pa.string()}
    schema = pa.schema({**names, "confidence": pa.float64(), "json": pa.string()})
    # A name that is no UTF-8 has its escapes in a table, too.
    lines = [line.encode(errors="backslashreplace").decode() for line in lines]
    rows = [json.loads(line) | {"json": line} for line in lines]
    for row in rows:
        row["file"] = row["file"].encode(errors="backslashreplace").decode()
    return pa.Table.from_pylist(rows, schema=schema)


def _count(lines: Sequence[str]) -> dict[str, list[Any]]:
    """What a report says of some lines, as a batch of one row."""
    rows = [json.loads(line.encode(errors="backslashreplace")) for line in lines]
    good = [row for row in rows if "error" not in row]
    return {
        "files": [len(rows)],
        "unsure": [sum(row["confidence"] < UNSURE for row in good)],
        "warned": [sum(bool(row["warnings"]) for row in good)],
        "reasons": [[r["error"].removeprefix(f"{r['file']}: ") for r in rows if "error" in r]],
    }


def _length(read: Read) -> int:
    return sum(map(len, read.input.ink.strokes)) if isinstance(read.input, Input) else 0


def _text(value: Any) -> str:
    return os.fsdecode(value) if isinstance(value, bytes) else str(value)
