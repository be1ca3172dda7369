"""Training on made-up ink: it learns, survives a kill, and is the same for one process or two."""

import csv
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import typer
import yaml
from inkmaker import made_up_store, write_inks
from PIL import Image
from tinymodel import tiny_run as config
from typer.testing import CliRunner

import gryphone
from gryphone.checkpoint import (
    WEIGHTS,
    load_model,
    read_checkpoint,
    read_description,
    read_tensors,
)
from gryphone.cli.training import register
from gryphone.config import PRESETS, Canvas, ModelConfig, Precision
from gryphone.data.datasets import read_dataset
from gryphone.data.packing import write_packed
from gryphone.data.store import InkStore, load_packed
from gryphone.errors import CheckpointError, ConfigError, DataError
from gryphone.kinds import KINDS, build_model, diffusion_network, part_of
from gryphone.model import GryphOne
from gryphone.ragged import draw_rows
from gryphone.tokens import MASK_ID, build_tokenizer
from gryphone.training.augment import Augment
from gryphone.training.mixture import (
    Mixture,
    StoreSource,
    allowed_tokens,
    load_sources,
    report_shareless,
    select_samples,
)
from gryphone.training.objective import seeded, token_canvas_lengths, training_loss
from gryphone.training.run_files import Run
from gryphone.training.settings import SourceConfig, TrainConfig, load_config
from gryphone.training.train import learning_rate, make_optimizer, start_accelerator, train

ROOT = Path(__file__).parents[1]
QUIET = {"report": lambda line: None}


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a GPU is, too: it adds up in another order each time."""
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")


def streamed(tmp_path: Path, shards: int = 1) -> SourceConfig:
    """A source of 40 inks in five files, of which two are held at a time."""
    for part in range(5):
        path = tmp_path / "parts" / f"{part}.parquet"
        inks = write_inks(tmp_path / f"part-{part}", 8, first=100 + 8 * part)
        write_packed(read_dataset(inks), path)
    return SourceConfig(str(tmp_path / "parts"), stream=16 * shards)


TOY = replace(PRESETS["tiny"], kind="toy")


def add_toy_kind(monkeypatch: pytest.MonkeyPatch, **parts: Callable[..., Any]) -> None:
    """A kind of decoder through the table alone: these parts, and the others of `diffusion`."""
    monkeypatch.setitem(sys.modules, "toy", SimpleNamespace(**parts))
    places = {name: f"toy:{name}" for name in parts}
    monkeypatch.setitem(KINDS, "toy", replace(KINDS["diffusion"], **places))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as handle:
        return list(csv.DictReader(handle))


@pytest.mark.parametrize(("scheme", "rmml"), [("sat", True), ("raw", False)])
def test_tiny_learns_64_made_up_inks_by_heart(tmp_path: Path, scheme: str, rmml: bool) -> None:
    model = replace(PRESETS["tiny"], length=16)  # the longest of these labels has 15 tokens
    settings = config(tmp_path, model=model, scheme=scheme, rmml=rmml, lr=4e-3, steps=240)
    settings = replace(settings, batch=16, time_power=2.0)
    train(replace(settings, validation={"own": str(tmp_path / "inks")}), **QUIET)
    scores = rows(tmp_path / "runs" / "run" / "eval.csv")[-1]
    assert float(scores["own/T1"]) == 100.0
    # Raw tokens without RMML may unsettle a right answer: two of 64 with other seeds.
    assert float(scores["own/T5"]) >= 93.0


def test_learning_rate_warms_up_and_falls_to_the_end() -> None:
    c = TrainConfig(name="x", sources=(SourceConfig("a"),), lr=1.0, warmup_steps=10, min_lr=0.01)
    assert learning_rate(c, 0, 0.0) == pytest.approx(0.1)
    assert learning_rate(c, 50, 0.5) == pytest.approx(0.505)
    assert learning_rate(c, 50, 1.0) == pytest.approx(0.01)
    theirs = replace(c, warmup_from=0.2, drop_from=5 / 6)
    assert learning_rate(theirs, 4, 0.0) == pytest.approx(0.2 + 0.8 * 0.5)
    assert [learning_rate(theirs, 50, p) for p in (0.5, 0.83, 0.84, 1.0)] == pytest.approx(
        [1, 1, 0.1, 0.1]
    )


def test_decay_spares_norms_and_embeddings_unless_told(tmp_path: Path) -> None:
    model, cpu = build_model(PRESETS["tiny"], (9, 4)), torch.device("cpu")
    settings = config(tmp_path, weight_decay=0.1)
    counts = {}
    for every in (False, True):
        groups = make_optimizer(model, replace(settings, decay_all=every), cpu).param_groups
        counts[every] = [len(group["params"]) for group in groups]
        assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert counts[True] == [len([*model.parameters()]), 0]
    assert min(counts[False]) > 0


@pytest.mark.parametrize("shared", [False, True])
def test_copies_are_masked_at_their_own_or_at_one_time(tmp_path: Path, shared: bool) -> None:
    """By what the network is fed: the shares of masked places of a sample's two copies."""
    packed = made_up_store(tmp_path, 64)
    tokenizer = build_tokenizer("sat", [x.split() for x in packed.labels])
    sizes, device = tuple(len(v) for v in tokenizer.vocabularies), torch.device("cpu")
    batch = InkStore.of(packed, tokenizer, 1000, device).batch(torch.arange(64))
    model = replace(PRESETS["tiny"], canvas=Canvas("square", 32, 8, 8), dense=True, length=1000)
    fed = []

    def network(patches: Any, tokens: Any, index: Any, own: Any) -> Any:
        fed.append((tokens[:, 0] == MASK_ID).float().view(64, 2, 1000).mean(2))
        return [torch.zeros(len(tokens), size) for size in sizes], []

    settings = config(tmp_path, shared_time=shared, model=model)
    training_loss(network, settings, batch, sizes, seeded(0, 0, 0, device))  # type: ignore[arg-type]
    apart = (fed[0][:, 0] - fed[0][:, 1]).abs()
    assert (float(apart.max()) < 0.1) == shared
    assert float(fed[0].std()) > 0.2  # samples have times of their own in both cases


@pytest.mark.parametrize("suffix", [0.0, 0.5, 1.0])
def test_the_end_of_so_many_canvases_is_masked(tmp_path: Path, suffix: float) -> None:
    packed = made_up_store(tmp_path, 64)
    tokenizer = build_tokenizer("sat", [x.split() for x in packed.labels])
    sizes, device = tuple(len(v) for v in tokenizer.vocabularies), torch.device("cpu")
    batch = InkStore.of(packed, tokenizer, 40, device).batch(torch.arange(64))
    ends = []

    def network(patches: Any, tokens: Any, index: Any, own: Any) -> Any:
        for part in (tokens[:, 0] == MASK_ID).int().split(own.offsets.diff().tolist()):
            ends.append(bool((part.diff() >= 0).all()))  # nothing is seen behind what is masked
        return [torch.zeros(len(tokens), size) for size in sizes], []

    settings = config(tmp_path, suffix=suffix)
    training_loss(network, settings, batch, sizes, seeded(0, 0, 0, device))  # type: ignore[arg-type]
    assert len(ends) == 128
    least, most = {0.0: (0, 0.3), 0.5: (0.4, 0.8), 1.0: (1, 1)}[suffix]
    assert least <= sum(ends) / len(ends) <= most


def test_canvases_hold_the_label_and_a_pad() -> None:
    lengths = torch.arange(1, 150).repeat(20)
    sizes = token_canvas_lengths(lengths, 150, torch.Generator().manual_seed(0))
    assert (sizes > lengths).all()
    assert sizes.max() == 150
    assert set(sizes.tolist()) == {16, 24, 32, 48, 64, 96, 128, 150}


def test_gradient_of_every_parameter(tmp_path: Path) -> None:
    packed = made_up_store(tmp_path, 8)
    tokenizer = build_tokenizer("sat", [x.split() for x in packed.labels])
    sizes = tuple(len(v) for v in tokenizer.vocabularies)
    device = torch.device("cpu")
    mixture = Mixture.of([StoreSource.of([packed], tokenizer, 40, device)], [1.0], 8)
    settings = config(tmp_path, corrupt=0.1)
    model = build_model(settings.model, sizes)
    generator = seeded(0, 0, 0, device)
    loss, parts = training_loss(model, settings, mixture.sample(generator), sizes, generator)
    loss.backward()
    # Positions beyond the longest canvas of the batch are the only ones without a gradient.
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []
    assert parts.keys() == {"tokens", "patches"}


def test_killed_run_goes_on_with_the_same_samples(tmp_path: Path) -> None:
    settings = config(tmp_path, steps=30, save_minutes=0.0, batch=8, log_every=1)
    settings = replace(settings, sources=(*settings.sources, streamed(tmp_path)))
    train(replace(settings, name="whole", save_minutes=1e9), **QUIET)
    path = tmp_path / "killed.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "name": "killed",
                "model": {"preset": "tiny"},
                "sources": [
                    {"path": str(tmp_path / "inks")},
                    {"path": str(tmp_path / "parts"), "stream": 16},
                ],
                **{
                    key: getattr(settings, key)
                    for key in ("out", "steps", "batch", "warmup_steps", "weight_decay", "ema")
                },
                "augment": None,
                "precision": "no",
                "log_every": 1,
                "save_minutes": 0.0,
            }
        )
    )
    command = [sys.executable, "-m", "gryphone", "train", str(path)]
    folder = tmp_path / "runs" / "killed"
    # As many threads as here: another number of them adds up in another order.
    settled = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, env=settled)
    while process.poll() is None and not list(folder.glob("state-*")):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (folder / "log.csv").exists() or len(rows(folder / "log.csv")) < 30
    train(load_config(path), **QUIET)
    losses = [
        {r["step"]: r["loss"] for r in rows(folder.with_name(n) / "log.csv")}
        for n in ("whole", "killed")
    ]
    assert losses[1]["30"] == losses[0]["30"]
    ends = [read_tensors(folder.with_name(n) / "checkpoint") for n in ("whole", "killed")]
    for name, tensor in ends[0].items():
        assert torch.equal(tensor, ends[1][name]), name


@pytest.mark.parametrize("mid_step", [True, False])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_is_saved_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, mid_step: bool
) -> None:
    handler, lines = signal.getsignal(number), []

    def interrupt(line: str) -> None:
        lines.append(line)
        if line.startswith("step 3 ") and not mid_step:
            signal.raise_signal(number)

    def step(*given: object) -> object:
        if mid_step and lines[-1].startswith("step 2 "):
            signal.raise_signal(number)
        return training_loss(*given)  # type: ignore[arg-type]

    add_toy_kind(monkeypatch, objective=step)
    settings = config(tmp_path, steps=6, batch=4, log_every=1, model=TOY)
    with pytest.raises(KeyboardInterrupt):
        train(settings, report=interrupt)
    state = tmp_path / "runs" / "run" / "state-000000003"
    assert lines[-1] == f"saved {state}; the same command goes on from there" and state.exists()
    assert signal.getsignal(number) is handler
    lines.clear()
    init = tmp_path / "runs" / "run"
    train(settings, init=init, report=lines.append)
    unused = f"; --init {init} is for new runs, and not used"
    assert f"resuming {state.parent} at step 3{unused}" in lines
    # In the middle of a step it is finished, but not logged.
    logged = [r["step"] for r in rows(state.parent / "log.csv")]
    assert logged == [str(n) for n in range(1, 7) if not (mid_step and n == 3)]


def test_interrupted_twice_a_step_is_left_unsaved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(*given: object) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    add_toy_kind(monkeypatch, objective=step)
    with pytest.raises(KeyboardInterrupt):
        train(config(tmp_path, model=TOY), **QUIET)
    assert not list((tmp_path / "runs" / "run").iterdir())


def test_a_kind_of_decoder_is_added_by_the_table_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[GryphOne] = []

    def network(settings: ModelConfig, *given: Any) -> GryphOne:
        made.append(diffusion_network(settings, *given))
        return made[-1]

    def objective(model: GryphOne, *given: object) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        loss = sum(p.square().sum() for p in model.parameters())
        return loss, {"toy": loss.detach()}  # type: ignore[union-attr, return-value]

    def sampler(*given: object) -> str:
        return "an answer"

    add_toy_kind(monkeypatch, network=network, objective=objective, sampler=sampler)
    path = train(config(tmp_path, steps=2, batch=4, log_every=1, model=TOY), **QUIET)
    log = rows(path.parent / "log.csv")
    assert [float(row["toy"]) for row in log] == [float(row["loss"]) for row in log]
    count = len(made)
    assert read_checkpoint(path).config.kind == "toy"
    assert load_model(path) is made[-1] and len(made) == count + 1
    assert part_of("toy", "sampler")() == "an answer"
    monkeypatch.undo()
    unknown = "config.json is incomplete: decoder kind 'toy' is unknown; use one of diffusion"
    with pytest.raises(CheckpointError, match=unknown):
        load_model(path)


def test_ctrl_c_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gryphone.training.train.train", stopped)
    (tmp_path / "a.yaml").write_text("sources: [{path: a}]")
    app = typer.Typer()
    register(app)
    result = CliRunner().invoke(app, [str(tmp_path / "a.yaml")])
    assert (result.exit_code, result.stderr) == (130, "gryphone: stopped\n")


def test_logs_stay_aligned_and_end_at_the_resumed_step(tmp_path: Path) -> None:
    run = Run(config(tmp_path))
    run.make_folder()
    for step in (10, 20):
        run.log("eval.csv", {"step": step, "a/T1": 1.5})
    run.log("eval.csv", {"step": 30, "b/T1": 2.5, "a/T1": 3.5})
    run.log("eval.csv", {"step": 40, "b/T1": 4.5})
    table = [list(row.values()) for row in rows(run.folder / "eval.csv")]
    assert table == [["10", "1.5", ""], ["20", "1.5", ""], ["30", "3.5", "2.5"], ["40", "", "4.5"]]
    assert [path.name for path in run.folder.iterdir()] == ["eval.csv"]
    run.rewind(20)
    assert [row["step"] for row in rows(run.folder / "eval.csv")] == ["10", "20"]


@pytest.mark.parametrize("text", ['{"step": 1, "ela', '{"step": 1}', "[]"])
def test_a_damaged_state_is_one_line(tmp_path: Path, text: str) -> None:
    run = Run(config(tmp_path))
    state = run.folder / "state-000000001"
    state.mkdir(parents=True)
    (state / "state.json").write_text(text)
    remedy = rf"state\.json is damaged \(.*\); remove {state} .* --init {run.checkpoint}$"
    with pytest.raises(DataError, match=remedy):
        train(config(tmp_path), **QUIET)


@pytest.mark.parametrize("size", ["width", "length"])
def test_first_weights_of_another_size_are_one_line(tmp_path: Path, size: str) -> None:
    first = train(config(tmp_path, steps=1, batch=4), **QUIET)
    model = replace(PRESETS["tiny"], **{size: 32})
    with pytest.raises(CheckpointError, match=r"^the weights in .* do not fit .*\)$") as caught:
        train(config(tmp_path, name="other", model=model), init=first, **QUIET)
    assert "\n" not in str(caught.value)


def test_the_device_does_not_depend_on_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []
    monkeypatch.setattr("gryphone.training.train.Accelerator", lambda **given: asked.append(given))
    for gpu in (True, False):
        monkeypatch.setattr("torch.cuda.is_available", lambda gpu=gpu: gpu)
        for precision in ("no", "bf16"):
            start_accelerator(precision)
    assert [given["cpu"] for given in asked] == [False, False, True, True]
    with pytest.raises(ConfigError, match="fp16, which needs a GPU"):
        start_accelerator("fp16")


TWO = """
import json, signal, sys, time
from dataclasses import replace
from gryphone.config import from_dict
from gryphone.training.run_files import Run
from gryphone.training.settings import TrainConfig
from gryphone.training.train import leave_processes, train

settings = from_dict(TrainConfig, json.loads(sys.argv[1]), "test")
train(settings)
save_state = Run.save_state

def save_late(self, *state):
    save_state(self, *state)
    time.sleep(0.6)

Run.save_state = save_late  # in the first process alone, and past the deadline
train(replace(settings, name="late", steps=10**6, minutes=0.02, save_minutes=0.015))

def interrupt(line):  # which the first process alone says
    if line.startswith("step 3"):
        signal.raise_signal(signal.SIGINT)
    print(line)

try:
    train(replace(settings, name="stopped", steps=10**6), report=interrupt)
except KeyboardInterrupt:
    pass
leave_processes()
"""


def test_two_processes_train_like_one_and_leave_together(tmp_path: Path) -> None:
    settings = config(tmp_path, steps=4, shards=2, batch=8, log_every=1)
    settings = replace(settings, sources=(*settings.sources, streamed(tmp_path, shards=2)))
    train(settings, **QUIET)
    script = tmp_path / "two.py"
    script.write_text(TWO)
    raw = json.dumps(asdict(replace(settings, name="two")))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("--master-port", "29517", str(script), raw),
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines.count("2 processes on cpu, precision no") == 3  # runs, one voice in each
    assert len([x for x in lines if "two/checkpoint after 4 steps" in x]) == 1
    assert any(x.endswith("state-000000003; the same command goes on from there") for x in lines)
    logs = [rows(tmp_path / "runs" / name / "log.csv") for name in ("run", "two")]
    for one, two in zip(*logs, strict=True):
        assert float(one["loss"]) == pytest.approx(float(two["loss"]), rel=2e-4)


def test_processes_that_found_different_files_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def both(here: list[str]) -> list[str]:
        return [*here, "step 4, another vocabulary, 7 inks"]

    monkeypatch.setattr("gryphone.training.train.gather_object", both)
    with pytest.raises(DataError, match=r"step 0, .* inks; step 4, another vocabulary, 7 inks; "):
        train(config(tmp_path, steps=2), **QUIET)


def test_fine_tuning_on_a_folder_grows_the_vocabulary(tmp_path: Path) -> None:
    first = train(config(tmp_path, steps=2), **QUIET)
    folder = write_inks(tmp_path / "mine", 8, first=500)
    ink = (folder / "made-up-500.inkml").read_text()
    label = ink.split('type="truth">')[1].split("<")[0]
    (folder / "made-up-500.inkml").write_text(ink.replace(f">{label}<", r">\zeta<", 1))
    settings = config(
        tmp_path, name="tuned", sources=(SourceConfig(str(folder)),), steps=2, batch=8
    )
    tuned = read_checkpoint(train(settings, init=first, **QUIET))
    assert r"\zeta" in tuned.tokenizer.vocabularies[0]
    for before, after in zip(
        read_checkpoint(first).tokenizer.vocabularies, tuned.tokenizer.vocabularies, strict=True
    ):
        assert after.tokens[: len(before)] == before.tokens  # what it knew, it still knows
    train(replace(settings, steps=3), **QUIET)  # goes on without being told where it began
    assert read_checkpoint(tmp_path / "runs" / "tuned" / "checkpoint").tokenizer == tuned.tokenizer
    with pytest.raises(ConfigError, match="'sat' tokens, scheme is 'raw'"):
        train(replace(settings, name="other", scheme="raw"), init=first, **QUIET)
    assert tuned.facts["training"]["samples"] == 16


def test_a_run_does_not_go_on_with_other_symbols_or_another_model(tmp_path: Path) -> None:
    settings = config(tmp_path, steps=1, batch=8)
    train(settings, **QUIET)
    wider = replace(settings, steps=2, model=replace(settings.model, width=32))
    with pytest.raises(DataError, match=r"runs/run was made with another model; give .* --out$"):
        train(wider, **QUIET)
    ink = (tmp_path / "inks" / "made-up-0.inkml").read_text()
    label = ink.split('type="truth">')[1].split("<")[0]
    new = tmp_path / "inks" / "new.inkml"
    new.write_text(ink.replace(f">{label}<", r">\zeta<", 1))
    known = len(read_checkpoint(tmp_path / "runs" / "run").tokenizer.vocabularies[0].names)
    sizes = rf"made with {known} symbols and \d+ modifiers, its data has {known + 1} symbols"
    with pytest.raises(DataError, match=rf"{sizes}.* --init .*runs/run/checkpoint"):
        train(replace(settings, steps=2), **QUIET)
    tuned = replace(settings, name="more")
    assert train(tuned, init=tmp_path / "runs" / "run", **QUIET).exists()  # as it advises


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where the folder of the runs should be")
    with pytest.raises(DataError, match="runs/run: cannot be written: Not a directory"):
        train(config(tmp_path), **QUIET)
    run = Run(config(tmp_path))
    run.folder = Path("/dev")
    with pytest.raises(DataError, match="/dev/full: cannot be written: No space left on device"):
        run.log("full", {"step": 1})


def test_dino_weights_go_into_the_dense_encoder_only(tmp_path: Path) -> None:
    path = tmp_path / "dino.pth"
    torch.save({"x": torch.zeros(1)}, path)
    with pytest.raises(CheckpointError, match="no DINO"):
        train(config(tmp_path, dino=str(path)), **QUIET)


def test_excluded_samples_are_counted(tmp_path: Path) -> None:
    packed = made_up_store(tmp_path, 30)
    lines: list[str] = []
    kept = select_samples(packed, SourceConfig("a", without=(r"\frac",)), lines.append)
    assert not any(r"\frac" in label for label in kept.labels)
    assert lines == [f"a: {30 - len(kept)} of 30 samples left out by its settings"]
    with pytest.raises(DataError, match="a: its settings leave out all of its 30 samples; change"):
        select_samples(packed, SourceConfig("a", without=tuple("+=")), lines.append)


@pytest.mark.parametrize("scheme", ["sat", "raw"])
def test_long_labels_can_be_left_out(tmp_path: Path, scheme: str) -> None:
    packed = made_up_store(tmp_path, 30)
    tokenizer = build_tokenizer(scheme, [x.split() for x in packed.labels])
    kept = select_samples(packed, SourceConfig("a", max_tokens=5), lambda line: None, scheme)
    assert 0 < len(kept) < 30
    InkStore.of(kept, tokenizer, 6, torch.device("cpu"))  # a canvas holds five tokens and an end
    assert len(kept) == sum(len(tokenizer.encode(x.split())) <= 5 for x in packed.labels)


def test_samples_keep_to_the_symbols_of_a_data_set(tmp_path: Path) -> None:
    packed = made_up_store(tmp_path, 30)
    source = SourceConfig("a", symbols_of=str(write_inks(tmp_path / "few", 3)))
    kept = select_samples(packed, source, lambda line: None)
    tokens = allowed_tokens(source, "crohme")
    assert tokens is not None
    assert list(kept.labels) == [x for x in packed.labels if tokens.issuperset(x.split(" "))]
    assert 0 < len(kept) < 30


def test_mixture_shares_add_up() -> None:
    mixture = Mixture.of([None, None, None], [1.0, 1.0, 5.0], 32)  # type: ignore[list-item]
    assert mixture.counts == mixture.finish == (4, 4, 24)
    mixture = Mixture.of([None, None], [1.0, 0.0], 32, [1.0, 3.0])  # type: ignore[list-item]
    assert (mixture.counts, mixture.finish) == ((32, 0), (8, 24))
    with pytest.raises(ConfigError, match="weight 0"):
        Mixture.of([None], [0.0], 32)  # type: ignore[list-item]


def test_sources_without_a_sample_in_a_batch_are_named() -> None:
    weights = ((15, None), (3, 0), (0, 45), (45, None))
    sources = tuple(SourceConfig(f"s{i}", w, f) for i, (w, f) in enumerate(weights))
    settings = TrainConfig(name="x", sources=sources, batch=4, finish=0.5)
    lines: list[str] = []
    report_shareless(settings, lines.append)
    assert lines == [
        "s0: gets no sample of a batch of 4 before the run's last part, since its weight is 15 of "
        "63; set batch to 5 or more",
        "s1: gets no sample of a batch of 4 before the run's last part, since its weight is 3 of "
        "63; set batch to 21 or more",
        "s0: gets no sample of a batch of 4 in the run's last part, since its weight is 15 of "
        "105; set batch to 7 or more",
    ]
    lines.clear()
    report_shareless(replace(settings, batch=21, finish=0.0), lines.append)
    assert not lines


def test_labels_can_be_spelt_otherwise(tmp_path: Path) -> None:
    write_inks(tmp_path / "inks", 12)
    settings = config(tmp_path, spell={"x": "+"})
    device = torch.device("cpu")
    mixture, tokenizer, _ = load_sources(settings, device, lambda line: None)
    plain, _, _ = load_sources(replace(settings, spell={}), device, lambda line: None)
    x, y = (tokenizer.vocabularies[0].id(name) for name in "x+")
    spelt, batch = (m.sample(seeded(0, 0, 0, device)) for m in (mixture, plain))
    for one, other in ((spelt.tokens, batch.tokens), (spelt.glyph_tokens, batch.glyph_tokens)):
        assert (other[:, 0] == x).any()
        assert torch.equal(one[:, 0], torch.where(other[:, 0] == x, y, other[:, 0]))
        assert torch.equal(one[:, 1:], other[:, 1:])
    with pytest.raises(ConfigError, match="'unknown' is not in the vocabulary"):
        load_sources(replace(settings, spell={"unknown": "+"}), device, lambda line: None)


CONFIGS = [p for p in sorted((ROOT / "configs").rglob("*.yaml")) if "arms" not in p.read_text()]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.name)
def test_every_shipped_config_is_valid(path: Path) -> None:
    settings = load_config(path)
    assert settings.name == re.sub(r"^\d+-", "", path.stem)  # as the log calls the run
    assert settings.sources


def test_rows_are_drawn_evenly_from_each_table() -> None:
    rows = draw_rows([2, 5, 3], [40, 0, 3000], torch.Generator().manual_seed(0))
    assert set(rows[:40].tolist()) == {0, 1}
    counts = torch.bincount(rows[40:], minlength=10)
    assert counts[:7].sum() == 0 and counts[7:].min() > 900 and len(counts) == 10


GOALS = [("scratch", "rivals"), ("mixture", "release"), ("pieces", "pieces")]


@pytest.mark.parametrize(("name", "goal"), GOALS)
def test_all_that_a_config_names_is_made(name: str, goal: str, tmp_path: Path) -> None:
    settings = load_config(ROOT / "configs" / f"{name}.yaml")
    named = {source.path for source in settings.sources} | set(settings.validation.values())
    named |= {source.glyphs for source in settings.sources if source.glyphs}
    command = ["make", "-n", "-f", "configs/data.mk", goal, f"P={tmp_path}/packed", "DATA=data"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    # Two commands write several files, and name their folder alone.
    together = {
        "synth build": "glyphs layouts-real layouts-crohme layouts-tex layouts-grammar",
        "synth pieces": "layouts-lone layouts-rows layouts-beginnings layouts-beginnings-crohme",
    }
    made = {f"{x}.npz" for what, names in together.items() if what in said for x in names.split()}
    made |= set(re.findall(rf"(?:--out |letters \S+ \S+ |hands \S+ ){tmp_path}/packed/(\S+)", said))
    assert {Path(path).name for path in named} <= made


def test_a_config_says_what_it_changes(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text(
        "name: first\nsources: [{path: a}, {path: b}]\nlr: 0.5\nmodel: {preset: tiny, length: 30}\n"
        "augment: {warp: 0, rotate: 0.1}\naugment.jitter: 0.2\nmodel.width: 32\n"
    )
    (tmp_path / "more").mkdir()
    path = tmp_path / "more" / "new.yaml"
    path.write_text(
        "extends: ../old.yaml\nsources: [{path: c}]\nmodel: {width: 16, canvas: {stroke: 20}}\n"
        "augment: {rotate: 0.3}\n"
    )
    settings = load_config(path, {"augment.shear": 0})
    assert (settings.name, settings.lr) == ("new", 0.5)
    assert settings.sources == (SourceConfig("c"),)
    assert settings.augment == Augment(warp=0, rotate=0.3, jitter=0.2, shear=0)
    model = replace(PRESETS["tiny"], length=30, width=16, canvas=Canvas(stroke=20))
    assert settings.model == model
    path.write_text("extends: ../old.yaml\naugment: null\n")
    assert load_config(path).augment is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: a.yaml", r"^extends leads in a circle: .*/a\.yaml -> .*/a\.yaml$"),
        ("extends: b.yaml", r"^cannot read .*/b\.yaml, which .*/a\.yaml extends: "),
        ("extends: [b.yaml]", r"a\.yaml: extends is \['b\.yaml'\]; it must be the name of another"),
    ],
)
def test_what_cannot_be_extended_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_config(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sources: []", "sources is empty"),
        ("sources: [{path: a}]\ncolour: 3", "unknown setting 'colour'"),
        ("sources: [{path: a, kind: film}]", "'film'"),
        ("sources: [{path: a, kind: synth}]", "needs 'glyphs'"),
        ("sources: [{path: a}]\nmodel: {preset: huge}", "'huge'"),
        ("sources: [{path: a}]\nlr: fast", "must be a number"),
        ("sources: [{path: a}]\nbatch: 0", "batch is 0"),
        ("sources: [{path: a}]\nprecision: fp8", "'fp8'"),
        ("sources: null", "sources is None; it must be a list"),
        ("sources: [a/b]", "sources is 'a/b'; it must be a mapping such as {path: ...}"),
        ("sources: [{weight: 2}]", "sources: the setting 'path' is missing"),
        ("sources: [{path: 3}]", "path is 3; it must be text"),
        ("sources: [{path: a}]\nmodel: tiny", "model is 'tiny'; it must be a mapping"),
        ("sources: [{path: a}]\nmodel: {preset: [a]}", "preset ['a'] is unknown"),
        ("sources: [{path: a}]\nmodel: {canvas: 5}", "model: canvas is 5; it must be a mapping"),
        ("sources: [{path: a}]\nmodel: {encoder_heads: 0}", "encoder_heads is 0"),
        ("sources: [{path: a}]\nmodel: {canvas: {patch: 0}}", "canvas patch is 0; it must be 1"),
        ("sources: [{path: a}]\nbatch: 4.5", "batch is 4.5; it must be a whole number"),
        ("sources: [{path: a}]\nbatch: true", "batch is True; it must be a number"),
        ("sources: [{path: a}]\ncompile: 1", "compile is 1; it must be true or false"),
        ("sources: [{path: a}]\nvalidation: a/b", "validation is 'a/b'; it must be a mapping"),
        ("sources: [{path: a}]\nvalidation: {a: 1}", "validation: a is 1; it must be text"),
        ("sources: [{path: a}]\nlr: [1]", "lr is [1]; it must be a number"),
        ("sources: [{path: a}]\nbetas: 5", "betas is 5; it must be a list of 2 values"),
        ("sources: [{path: a}]\nbetas: [0.9]", "betas is [0.9]; it must be a list of 2 values"),
        ("sources: [{path: a}]\naugment: 5", "augment is 5; it must be a mapping"),
        ("sources: [{path: a}]\neval_steps: 1", "eval_steps is 1; it must be a list"),
        ("sources: [{path: a}]\neval_steps: [x]", "eval_steps is 'x'; it must be a number"),
        ("sources: [{path: a}]\nconvention: foo", "'foo' is unknown; use one of crohme, math"),
        ("sources: [{path: a}]\nminutes: -1", "minutes is -1; it must be more than 0"),
        ("sources: [{path: a}]\naugment: {rotate: 13}", "augment: rotate is 13; it must be from 0"),
        ("sources: [{path: a, weight: .nan}]", "source a has the share nan"),
        ("sources: [{path: a, finish: -1}]", "source a has the share -1"),
        ("sources: [{path: a, max_tokens: 0}]", "max_tokens 0; it must be 1 or more"),
        ("sources: [{path: a}]\nunseen: {b: c}", "unseen names 'b'; the validation sets are: none"),
        ("sources: [{path: a}]\naugment: null\naugment.warp: 0", "augment is None; augment.warp"),
        ("sources: [{path: a}]\nsources.0.path: b", "sources.0.path needs a mapping there"),
        ("sources: [{path: a}]\nmodel.lenght: 9", "model: unknown setting 'lenght'"),
        ("3", "holds no settings"),
        ("a: [", "cannot read"),
    ],
)
def test_bad_configs_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_config(path)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        *(("lr", value, "more than 0") for value in (-1, math.nan)),
        *(("ema", value, "from 0 to less than 1") for value in (2, -1, 1)),
        ("betas", (0.9, 3), "from 0 to less than 1"),
        ("eval_limit", -3, "0 or more"),
        ("eval_steps", (1, 0), "1 or more"),
        ("warmup_steps", -5, "0 or more"),
        ("corrupt", 5, "from 0 to 1"),
        ("time_power", -3, "more than 0"),
        ("clip", -1, "more than 0"),
        ("weight_decay", -1, "0 or more"),
        ("aux_weight", -1, "0 or more"),
        ("name", "../../x", "that of one folder"),
        ("name", "", "that of one folder"),
    ],
)
def test_numbers_out_of_their_range_are_named(name: str, value: object, allowed: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} is .*; it must be {allowed}"):
        TrainConfig(**{"name": "x", "sources": (SourceConfig("a"),), name: value})  # type: ignore[arg-type]


def test_dotted_names_change_one_nested_setting(tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text("sources: [{path: a}]\nmodel: {preset: tiny, decoder_depth: 3}")
    changes = {"model.length": 100, "model.canvas.stroke": 20, "augment.rotate": 0.5}
    settings = load_config(path, {**changes, "validation.b": "c"})
    tiny = PRESETS["tiny"]
    canvas = replace(tiny.canvas, stroke=20)
    assert settings.model == replace(tiny, decoder_depth=3, length=100, canvas=canvas)
    assert settings.augment == Augment(rotate=0.5)
    assert settings.validation == {"b": "c"}
    ink = replace(PRESETS["ink"], decoder_depth=3)
    assert load_config(path, {"model.preset": "ink"}).model == ink


def test_numbers_may_be_written_in_any_way(tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text("sources: [{path: a}]\nlr: 1e-3\nbatch: 1e2\naugment: null\nbetas: [0, 0.9]")
    settings = load_config(path)
    assert (settings.lr, settings.batch, settings.betas) == (1e-3, 100, (0, 0.9))
    assert isinstance(settings.batch, int) and settings.augment is None


def test_a_setting_on_the_command_line_that_is_no_yaml(tmp_path: Path) -> None:
    app = typer.Typer()
    register(app)
    words = [str(tmp_path / "a.yaml"), "--set", "lr=["]
    with pytest.raises(ConfigError, match=r"--set lr=\[: '\[' is no YAML value"):
        CliRunner().invoke(app, words, catch_exceptions=False)


def test_what_a_file_extends_is_kept_where_it_names_nothing(tmp_path: Path) -> None:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text("sources: [{path: a}]\nmodel: {canvas: {side: 304, dot: 1}}\nmodel.length: 20")
    new.write_text("extends: old.yaml\nmodel: {canvas: {side: 200}}")
    model = load_config(new).model
    assert (model.canvas.side, model.canvas.dot, model.length) == (200, 1, 20)
    new.write_text("extends: old.yaml\nmodel: 5")
    with pytest.raises(ConfigError, match="model is 5; it must be a mapping"):
        load_config(new)
    new.write_text("extends: old.yaml\nmodel.kind: foo")
    with pytest.raises(ConfigError, match="decoder kind 'foo' is unknown; use one of diffusion"):
        load_config(new)


def test_precision_no_is_a_word(tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text("sources: [{path: a}]\nprecision: no")
    assert load_config(path).precision == "no"


def test_ink_of_another_precision_is_refused(tmp_path: Path) -> None:
    finer = replace(PRESETS["tiny"], ink_precision=Precision(grid=16))
    packed = load_packed(write_inks(tmp_path / "inks", 4), "crohme", finer.ink_precision)
    assert packed.precision == Precision(grid=16)  # a folder is packed as the model reads
    store = tmp_path / "plain.parquet"
    write_packed(read_dataset(tmp_path / "inks"), store)
    differs = rf"{store} was packed with .*grid=8.* reads .*grid=16.*; give the data set itself"
    for sets in ({"sources": (SourceConfig(str(store)),)}, {"validation": {"a": str(store)}}):
        with pytest.raises(DataError, match=differs):
            train(config(tmp_path, model=finer, **sets), **QUIET)
    only_names = (SourceConfig(str(tmp_path / "inks"), symbols_of=str(store)),)
    first = train(config(tmp_path, steps=1, batch=4, model=finer, sources=only_names), **QUIET)
    with pytest.raises(
        CheckpointError, match=r"^the weights in .*grid=16.*grid=8.*; set model\.ink"
    ):
        train(config(tmp_path, name="other"), init=first, **QUIET)
    # Nor does a run go on that way.
    coarser = replace(finer, ink_precision=Precision(grid=4))
    with pytest.raises(CheckpointError, match=r"grid=16.*grid=4"):
        train(config(tmp_path, steps=2, batch=4, model=coarser), **QUIET)
    with pytest.raises(ConfigError, match="grid is 0; it must be more than 0"):
        Precision(grid=0)


def test_the_released_weights_name_the_precision_of_their_ink() -> None:
    model = read_description(WEIGHTS)["model"]
    assert Precision(**model["ink_precision"]) == Precision(384.0, 16.0, 0.25, 8)


def test_bad_training_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        train(config(tmp_path, sources=(SourceConfig(str(tmp_path / "no")),)), **QUIET)
    (tmp_path / "inks" / "broken.inkml").write_text("<ink>")
    command = f"`gryphone data pack {tmp_path}/inks --out {tmp_path}/inks.parquet` lists them"
    unusable = rf"1 samples cannot be used, the first is .*broken.*: {command}"
    with pytest.raises(DataError, match=unusable):
        train(config(tmp_path), **QUIET)


def test_a_folder_of_pictures_names_the_command_that_packs_it(tmp_path: Path) -> None:
    (tmp_path / "my photos").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "my photos" / "a.png")
    (tmp_path / "my photos" / "labels.tsv").write_text("a\tx\n")
    folder = f"{tmp_path}/my photos"
    command = f"gryphone data pack '{folder}' --out '{folder}.parquet'"
    with pytest.raises(DataError, match=f"holds pictures, .*: run `{command}`"):
        train(config(tmp_path, sources=(SourceConfig(folder),)), **QUIET)


def test_a_run_says_at_once_what_it_does(tmp_path: Path) -> None:
    lines: list[str] = []
    train(config(tmp_path, steps=3, batch=4), report=lines.append)
    device, packing, inks, sizes, first, *_ = lines
    folder = tmp_path / "inks"
    assert device == "1 process on cpu, precision no"
    assert packing.startswith(f"{folder}: is packed for this run alone; `gryphone data pack ")
    assert inks == f"{folder}: 64 inks"
    assert re.fullmatch(r"0\.\d million parameters, \d+ symbols and .*; 4 samples a step", sizes)
    assert re.match(r"step 1  minutes .*  loss \d", first)
    logged = [row["step"] for row in rows(tmp_path / "runs" / "run" / "log.csv")]
    assert logged == ["3"]  # what is said between two logs is not logged


def test_a_slow_run_goes_on_speaking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gryphone.training.train.SPEAK", 0)  # seconds without a word
    lines: list[str] = []
    train(config(tmp_path, steps=4, batch=4), report=lines.append)
    assert [line.split()[1] for line in lines if line.startswith("step ")] == ["1", "2", "3", "4"]


def test_the_paper_s_network_learns_and_reads_on_its_one_canvas(tmp_path: Path) -> None:
    """All that its preset changes, in small: trained, saved, loaded, decoded plainly."""
    small = replace(
        PRESETS["paper"],
        canvas=Canvas("square", 64, 8, 8),
        width=48,
        encoder_depth=1,
        decoder_depth=1,
        decoder_heads=4,
        length=16,
        attention_dropout=0.0,
    )
    settings = config(tmp_path, model=small, lr=4e-3, steps=120, batch=32, shared_time=True)
    settings = replace(settings, detached=True, decay_all=True, clip=10.0, drop_from=0.8)
    folder = train(replace(settings, validation={"own": str(tmp_path / "inks")}), **QUIET)
    losses = [float(row["loss"]) for row in rows(tmp_path / "runs" / "run" / "log.csv")]
    assert losses[-1] < losses[0] / 2
    recognizer = gryphone.load(folder)
    assert recognizer.checkpoint.config == small
    lengths: list[int] = []
    ink = next(read_dataset(tmp_path / "inks")).ink
    recognizer.recognize(
        ink, steps=3, plain=True, on_step=lambda step: lengths.append(len(step.rows))
    )
    assert len(lengths) == 3
    request = recognizer.request(gryphone.Ask(steps=3), np.zeros(1, dtype=np.int64))
    assert (request.options.start, request.options.remasking) == (16, small.remasking)
