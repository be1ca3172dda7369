"""Stores that are not all in memory: every ink once an epoch, in an order that is known."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from inkmaker import made_up_ink

from gryphone.config import PRESETS
from gryphone.data.packed import Packed, PackedFile, read_packed
from gryphone.data.packing import SUMMARY, write_packed
from gryphone.data.samples import Sample
from gryphone.data.store import InkStore, TrainingBatch
from gryphone.data.stream import InkStream
from gryphone.errors import ConfigError, DataError
from gryphone.tokens import build_tokenizer
from gryphone.training.mixture import load_sources
from gryphone.training.objective import seeded
from gryphone.training.settings import SourceConfig, TrainConfig

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six files of one row group each, of eight inks."""
    folder = tmp_path_factory.mktemp("parts")
    for part in range(6):
        inks = [made_up_ink(n) for n in range(8 * part, 8 * part + 8)]
        write_packed(
            (Sample(i.id, "made", i.label, ink=i) for i in inks), folder / f"{part}.parquet"
        )
    return folder


class Watched:
    """A stream, and the inks that each window of it read."""

    def __init__(self, parts: Path, most: int = 16, shards: int = 2, seed: int = 0) -> None:
        self.read: list[list[str]] = []
        files = [PackedFile(path) for path in sorted(parts.iterdir())]
        tokenizer = build_tokenizer("sat", [x.split() for f in files for x in f.labels["cover"]])  # type: ignore[index]

        def prepare(packed: Packed) -> InkStore:
            self.read.append(packed.ids)
            return InkStore.of(packed, tokenizer, 40, CPU)

        self.whole = prepare(read_packed(sorted(parts.iterdir())))
        self.read.clear()
        self.stream = InkStream(files, most, prepare, seed=seed, shards=shards)


def fingerprints(batch: TrainingBatch) -> list[float]:
    """A number for each ink, by which they are told apart."""
    sums = torch.zeros(batch.ink.size).index_add(0, batch.ink.sample, batch.ink.points.sum(1))
    return [round(x, 3) for x in sums.tolist()]


def test_every_ink_comes_once_an_epoch_in_another_order(parts: Path) -> None:
    watched = Watched(parts, shards=1)
    stream, whole = watched.stream, watched.whole
    assert len(stream) == len(whole) == 48
    epochs = [fingerprints(stream.batch(48 * n, 48, 0)) for n in range(3)]
    inks = sorted(fingerprints(whole.batch(torch.arange(48))))
    assert len(set(inks)) == 48
    assert [sorted(epoch) for epoch in epochs] == [inks] * 3
    assert epochs[0] != epochs[1] != epochs[2] and epochs[0] != inks
    # Two groups at most, of two places in the store: neighbours there are not neighbours here.
    assert {len(ids) for ids in watched.read} == {16}
    assert fingerprints(Watched(parts, shards=1, seed=1).stream.batch(0, 48, 0)) != epochs[0]


def test_a_shard_reads_its_own_groups_and_goes_on_anywhere(parts: Path) -> None:
    both, second = Watched(parts), Watched(parts)
    batches = [[both.stream.batch(4 * n, 4, shard) for n in range(12)] for shard in (0, 1)]
    # Six groups are dealt out in turn: three each, and one of them is held at a time.
    halves = [[x for batch in shard for x in fingerprints(batch)] for shard in batches]
    inks = sorted(fingerprints(both.whole.batch(torch.arange(48))))
    assert sorted(halves[0][:24] + halves[1][:24]) == inks
    # One that is asked for the end at first, and for the beginning later, gives the same.
    for n in (11, 3, 4, 0):
        again = second.stream.batch(4 * n, 4, 1)
        assert torch.equal(again.ink.points, batches[1][n].ink.points)
        assert torch.equal(again.tokens, batches[1][n].tokens)
    assert not torch.equal(again.ink.points, batches[0][0].ink.points)
    assert {len(ids) for ids in both.read} == {8}


def config(source: SourceConfig, **settings: object) -> TrainConfig:
    base = TrainConfig("x", (source,), model=PRESETS["tiny"], batch=8)
    return replace(base, **settings)  # type: ignore[arg-type]


def test_settings_of_a_streamed_source(parts: Path) -> None:
    lines: list[str] = []
    source = SourceConfig(str(parts), stream=16, without=(r"\frac",))
    mixture, tokenizer, _ = load_sources(config(source), CPU, lines.append)
    assert f"{parts}: 48 inks, 16 of them in memory at a time" in lines
    assert mixture.inks == 48
    fraction = tokenizer.vocabularies[0].id(r"\frac")
    tokens = [mixture.sample(seeded(0, n, 0, CPU), step=n).tokens[:, 0] for n in range(12)]
    assert fraction not in torch.cat(tokens)
    plain, _, _ = load_sources(config(SourceConfig(str(parts), stream=16)), CPU, lines.append)
    tokens = [plain.sample(seeded(0, n, 0, CPU), step=n).tokens[:, 0] for n in range(12)]
    assert fraction in torch.cat(tokens)
    resident = load_sources(config(SourceConfig(str(parts / "0.parquet"))), CPU, lines.append)
    assert set(resident[1].vocabularies[0].tokens) <= set(tokenizer.vocabularies[0].tokens)


def test_what_cannot_be_streamed_is_said_at_the_start(parts: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    def refused(source: SourceConfig, **settings: object) -> str:
        with pytest.raises(DataError) as caught:
            load_sources(config(source, **settings), CPU, lambda line: None)
        return str(caught.value)

    few = refused(SourceConfig(str(parts), stream=15), shards=2)
    assert "row groups of up to 8 inks" in few and "stream to 16 or more" in few
    assert "only packed stores can be streamed; run `gryphone data pack" in refused(
        SourceConfig(str(tmp_path), stream=8)
    )
    old = pq.read_table(parts / "0.parquet")
    pq.write_table(old, tmp_path / "old.parquet")
    assert SUMMARY not in (pq.ParquetFile(tmp_path / "old.parquet").metadata.metadata or {})
    assert "was packed before stores could be streamed" in refused(
        SourceConfig(str(tmp_path / "old.parquet"), stream=8)
    )
    long = refused(SourceConfig(str(parts), stream=16), model=replace(PRESETS["tiny"], length=4))
    assert "a label has" in long and "the model's canvas holds 3" in long
    with pytest.raises(ConfigError, match="stream 8; it must be 0"):
        SourceConfig("a", kind="synth", glyphs="b", stream=8)
