"""A checkpoint directory rebuilds itself, in full or in eight bits, and says what is wrong."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from gryphone.checkpoint import (
    WEIGHTS,
    checkpoint_directory,
    dequantize,
    load_model,
    quantize,
    read_checkpoint,
    read_tensors,
    save_checkpoint,
)
from gryphone.config import PRESETS
from gryphone.errors import CheckpointError
from gryphone.kinds import build_model
from gryphone.release.release import DATA, LICENCE, release
from gryphone.release.release import main as release_main
from gryphone.tokens import build_tokenizer
from gryphone.training.initialise import carry_vocabulary

LABELS = [[r"\frac", r"{", r"1", r"}", r"{", r"2", r"}"], ["x", "^", "{", "2", "}", "+", "3"]]


def save(path: Path, **settings: object) -> torch.nn.Module:
    tokenizer = build_tokenizer("sat", LABELS)
    torch.manual_seed(1)
    model = build_model(PRESETS["tiny"], tuple(len(v) for v in tokenizer.vocabularies))
    save_checkpoint(
        path, model.state_dict(), PRESETS["tiny"], tokenizer, {"convention": "crohme"}, **settings
    )
    return model


def test_round_trip(tmp_path: Path) -> None:
    model = save(tmp_path / "a")
    loaded, network = read_checkpoint(tmp_path / "a"), load_model(tmp_path / "a")
    assert loaded.config == PRESETS["tiny"]
    assert loaded.tokenizer == build_tokenizer("sat", LABELS)
    assert loaded.facts == {"convention": "crohme"}
    for name, value in model.state_dict().items():
        assert torch.equal(value, network.state_dict()[name])
    assert not network.training
    assert loaded.parameters == sum(p.numel() for p in network.parameters())
    save(tmp_path / "a")  # overwriting leaves nothing behind
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_runs_folder_stands_for_its_checkpoint(tmp_path: Path) -> None:
    save(tmp_path / "run" / "checkpoint")
    assert read_checkpoint(tmp_path / "run").tokenizer == build_tokenizer("sat", LABELS)
    assert read_tensors(tmp_path / "run").keys() == read_tensors(tmp_path / "run/checkpoint").keys()
    save(tmp_path / "own")
    (tmp_path / "own" / "config.json").rename(tmp_path / "run" / "config.json")  # comes first
    assert checkpoint_directory(tmp_path / "run") == tmp_path / "run"


def test_int8_is_a_quarter_of_the_size_and_close(tmp_path: Path) -> None:
    model = save(tmp_path / "a")
    save(tmp_path / "b", int8=True)
    sizes = [sum(p.stat().st_size for p in (tmp_path / n).glob("*.safetensors")) for n in "ab"]
    assert sizes[1] < 0.35 * sizes[0]
    loaded = load_model(tmp_path / "b").state_dict()
    for name, value in model.state_dict().items():
        assert (loaded[name] - value).abs().max() <= value.abs().max() / 127


def files_in(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


@pytest.mark.parametrize("name", ["thesis/chapter.tex", "config.json", "checkpoint/config.json"])
def test_only_a_checkpoint_is_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / "out" / name).parent.mkdir(parents=True)
    (tmp_path / "out" / name).write_text("years of work")
    before = files_in(tmp_path)
    with pytest.raises(CheckpointError, match="out is a directory that is no checkpoint and will"):
        save(tmp_path / "out")
    with pytest.raises(CheckpointError, match="is a file and will not be replaced"):
        save(tmp_path / "out" / name)
    assert files_in(tmp_path) == before


def test_an_empty_directory_is_a_place_for_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    save(tmp_path / "out")
    assert read_checkpoint(tmp_path / "out").config == PRESETS["tiny"]


def test_a_release_carries_the_facts_it_is_given(tmp_path: Path) -> None:
    save(tmp_path / "run")
    size = release([tmp_path / "run"], tmp_path / "weights", {"valid": {"em": 12.5}})
    facts = read_checkpoint(tmp_path / "weights").facts
    assert facts == {"convention": "crohme", "metrics": {"valid": {"em": 12.5}}}
    assert size < sum(p.stat().st_size for p in (tmp_path / "run").iterdir())


def test_the_projects_weights_are_released_with_their_licence(tmp_path: Path) -> None:
    save(tmp_path / "run")
    for _ in range(2):  # the second replaces the first
        release([tmp_path / "run"], tmp_path / "out", {}, LICENCE)
        for kept in ("LICENSE", "lone.safetensors"):
            assert (tmp_path / "out" / kept).read_bytes() == (WEIGHTS / kept).read_bytes()
    release([tmp_path / "run"], tmp_path / "mine", {}, "my own")
    assert not (tmp_path / "mine" / "LICENSE").exists()


def test_default_is_the_package_unless_there_is_such_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert checkpoint_directory(Path("default")) == WEIGHTS
    save(tmp_path / "default")
    assert checkpoint_directory(Path("default")) == Path("default")


@pytest.mark.parametrize(
    ("options", "licence", "data"),
    [
        ([], None, None),
        (["--licence", "mine", "--data", "a", "--data", "b"], "mine", ["a", "b"]),
        (["--gryphone"], LICENCE, list(DATA)),
        (["--gryphone", "--data", "a"], LICENCE, ["a"]),
    ],
)
def test_nobody_elses_licence_is_claimed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    licence: str | None,
    data: list[str] | None,
) -> None:
    save(tmp_path / "run")
    words = [str(tmp_path / "run"), "--out", str(tmp_path / "weights"), *options]
    monkeypatch.setattr(sys, "argv", ["release", *words])
    release_main()
    facts = read_checkpoint(tmp_path / "weights").facts
    assert (facts.get("licence"), facts.get("data")) == (licence, data)


def test_a_release_needs_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "a")
    save(tmp_path / "b")
    before = (tmp_path / "b" / "config.json").read_text()
    monkeypatch.setattr(sys, "argv", ["release", str(tmp_path / "a"), str(tmp_path / "b")])
    with pytest.raises(SystemExit):
        release_main()
    assert (tmp_path / "b" / "config.json").read_text() == before


@pytest.mark.parametrize(
    ("change", "labels", "convention", "message"),
    [
        ({"width": 32}, LABELS, "crohme", r"model\.width is 64 in the first, 32 in the second"),
        ({}, [*LABELS, ["z"]], "crohme", r"vocabulary\.symbols\.\d+ is None in the first, 'z'"),
        # Of the same shape: the mean would be nonsense without an error.
        ({}, [LABELS[0], ["y", *LABELS[1][1:]]], "crohme", r"\d+ is 'x' in the first, 'y'"),
        ({}, LABELS, "none", "convention is 'crohme' in the first, 'none'"),
    ],
)
def test_only_checkpoints_of_one_model_are_averaged(
    tmp_path: Path, change: dict[str, int], labels: list[list[str]], convention: str, message: str
) -> None:
    save(tmp_path / "a")
    config, tokenizer = replace(PRESETS["tiny"], **change), build_tokenizer("sat", labels)
    weights = build_model(config, tuple(len(v) for v in tokenizer.vocabularies)).state_dict()
    save_checkpoint(tmp_path / "b", weights, config, tokenizer, {"convention": convention})
    with pytest.raises(CheckpointError, match=message):
        release([tmp_path / "a", tmp_path / "b"], tmp_path / "weights", {})


def test_a_release_is_the_mean_of_a_runs_checkpoints(tmp_path: Path) -> None:
    for name, factor in (("a", 0.5), ("b", 1.5)):
        save(tmp_path / name)
        checkpoint = read_checkpoint(tmp_path / name)
        weights = {k: factor * v for k, v in load_model(tmp_path / name).state_dict().items()}
        facts = {"training": {"minutes": 2 * factor}}
        save_checkpoint(tmp_path / name, weights, checkpoint.config, checkpoint.tokenizer, facts)
    mean = save(tmp_path / "c").state_dict()
    release([tmp_path / "a", tmp_path / "b"], tmp_path / "weights", {})
    released = read_checkpoint(tmp_path / "weights")
    assert released.facts["averaged"] == [1.0, 3.0]
    for name, value in load_model(tmp_path / "weights").state_dict().items():
        assert (value - mean[name]).abs().max() <= mean[name].abs().max() / 100


def test_quantised_matrices_are_within_half_a_step() -> None:
    matrix = torch.randn(7, 33, generator=torch.Generator().manual_seed(0))
    restored = dequantize(quantize({"w": matrix, "b": torch.ones(3)}))
    step = matrix.abs().amax(1, keepdim=True) / 127
    assert ((restored["w"] - matrix).abs() <= step / 2 + 1e-6).all()
    assert torch.equal(restored["b"], torch.ones(3, dtype=torch.float16))


def test_damage_is_named(tmp_path: Path) -> None:
    save(tmp_path / "a")
    shard = next((tmp_path / "a").glob("*.safetensors"))
    data = shard.read_bytes()
    shard.write_bytes(data[: len(data) // 2])
    with pytest.raises(CheckpointError, match="damaged or truncated"):
        read_checkpoint(tmp_path / "a")
    shard.unlink()
    with pytest.raises(CheckpointError, match="holds no weights"):
        read_checkpoint(tmp_path / "a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "not written by GryphOne"),
        ('{"format": "other"}', "not written by GryphOne"),
        ('{"format": "gryphone-checkpoint", "version": 99, "gryphone": "9.0"}', "version 99"),
        ('{"format": "gryphone-checkpoint", "version": 1}', "incomplete"),
        (
            '{"format": "gryphone-checkpoint", "version": 1, "model": {"colour": 3}}',
            "unknown setting 'colour'",
        ),
    ],
)
def test_foreign_descriptions_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(tmp_path)


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is no checkpoint directory"):
        read_checkpoint(tmp_path / "nowhere")


def test_weights_of_another_size_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "a")
    path = tmp_path / "a" / "config.json"
    description = json.loads(path.read_text())
    description["model"]["width"] = 32
    path.write_text(json.dumps(description))
    with pytest.raises(CheckpointError, match="do not fit"):
        load_model(tmp_path / "a")


@pytest.mark.parametrize(
    "reason",
    [OSError(28, "No space left on device"), SafetensorError("I/O error: No space left on device")],
)
def test_a_full_disk_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: Exception
) -> None:
    save(tmp_path / "a")
    before = read_tensors(tmp_path / "a")

    def full(*_: object) -> None:
        raise reason

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(CheckpointError, match="No space left"):
        save(tmp_path / "a")
    assert read_tensors(tmp_path / "a").keys() == before.keys()
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_weights_follow_their_tokens_into_a_larger_vocabulary() -> None:
    old = build_tokenizer("sat", LABELS)
    new = build_tokenizer("sat", [["z"], ["y"], *reversed(LABELS)])
    weights = torch.arange(len(old.vocabularies[0]) * 4.0).view(-1, 4)
    fresh = {
        "decoder.embed.0.weight": torch.full((len(new.vocabularies[0]), 4), -1.0),
        "decoder.heads.0.bias": torch.zeros(len(new.vocabularies[0])),
    }
    carried = carry_vocabulary({"decoder.embed.0.weight": weights}, fresh, old, new)
    table = carried["decoder.embed.0.weight"]
    for token in old.vocabularies[0].tokens:
        assert torch.equal(
            table[new.vocabularies[0].id(token)], weights[old.vocabularies[0].id(token)]
        )
    assert (table[new.vocabularies[0].id("z")] == -1).all()
