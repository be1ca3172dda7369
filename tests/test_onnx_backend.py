"""ONNX Runtime behind the backend seam: PyTorch's answers, without PyTorch."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from inkmaker import some
from typer.testing import CliRunner

import gryphone
from gryphone.checkpoint import (
    load_model,
    read_arrays,
    read_checkpoint,
    read_tensors,
    save_checkpoint,
)
from gryphone.cli import make_app
from gryphone.config import PRESETS, Canvas, DecoderStyle
from gryphone.errors import CheckpointError, ConfigError, DataError, GryphoneError
from gryphone.kinds import build_model
from gryphone.recognition.backend import View
from gryphone.recognition.drawing import drawing_of
from gryphone.recognition.onnx_backend import OnnxBackend, adds_exactly
from gryphone.recognition.onnx_graph import Arithmetic
from gryphone.recognition.torch_backend import TorchBackend

INKS = [ink.strokes for ink in some(4)]
NONE = np.zeros(1, int)


def onnx(path: Path, how: Arithmetic) -> OnnxBackend:
    return OnnxBackend.load(path, read_checkpoint(path), 1, how)


def canvases(count: int, length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 6, (count, length, 2))


@pytest.fixture(scope="module")
def dense_weights(tmp_path_factory: pytest.TempPathFactory, tiny_weights: Path) -> Path:
    """A tiny network of the paper's kind, with the weights of rows that eight bits hold."""
    canvas = Canvas("square", 64, 8, 8)
    config = replace(PRESETS["tiny"], canvas=canvas, dense=True, aux=False)
    tokenizer = read_checkpoint(tiny_weights).tokenizer
    torch.manual_seed(1)
    model = build_model(config, tuple(len(v) for v in tokenizer.vocabularies))
    path = tmp_path_factory.mktemp("dense") / "weights"
    save_checkpoint(path, model.state_dict(), config, tokenizer, {}, int8=True)
    return path


@pytest.mark.parametrize(
    ("kind", "view"), [("tiny", View()), ("tiny", View(1.15, -0.03)), ("dense", View())]
)
def test_says_what_pytorch_says(
    kind: str, view: View, tiny_weights: Path, dense_weights: Path
) -> None:
    path = tiny_weights if kind == "tiny" else dense_weights
    mine = onnx(path, Arithmetic.float32)
    other = TorchBackend(load_model(path), read_checkpoint(path).config)
    lengths, images, tokens = np.array([9, 5, 9, 7]), np.array([0, 1, 2, 3]), canvases(4, 9)
    memories = mine.encode(INKS, view), other.encode(INKS, view)
    found, expected = (
        backend.predict(memory, tokens, lengths, images)
        for backend, memory in zip((mine, other), memories, strict=True)
    )
    inside = np.arange(9) < lengths[:, None]
    for one, two in zip(found, expected, strict=True):
        assert one.shape == two.shape and not one[~inside].any()
        assert np.allclose(one, two, atol=1e-4)
    answers = [tokens[i, :n] for i, n in enumerate(lengths)]
    placed, wanted = mine.evidence(memories[0], answers), other.evidence(memories[1], answers)
    if kind == "dense":
        assert placed is None and wanted is None
        assert mine.nothing(memories[0]) is None and other.nothing(memories[1]) is None
        return
    assert placed is not None and wanted is not None
    for one, two in zip(placed, wanted, strict=True):
        assert one.shape == two.shape and np.allclose(one, two, atol=1e-3)
    blank = mine.nothing(memories[0]), other.nothing(memories[1])
    assert blank[0] is not None and blank[1] is not None
    for ink, one, two in zip(INKS, *blank, strict=True):
        assert one.shape == (len(ink),) and np.allclose(one, two, atol=1e-4)


def test_eight_bits_are_close_and_the_offset_changes_nothing(tiny_weights: Path) -> None:
    exact, signed, offset = (onnx(tiny_weights, how) for how in Arithmetic)
    tokens = canvases(1, 12)
    said = [
        backend.predict(backend.encode(INKS[:1]), tokens, np.array([12]), NONE)
        for backend in (exact, signed, offset)
    ]
    for one, two, three in zip(*said, strict=True):
        assert 0 < np.abs(one - two).max() < 0.05
        # Other processors add pairs of products in 16 bits, and round what is too large.
        assert not adds_exactly() or np.array_equal(two, three)


@pytest.mark.parametrize("how", [Arithmetic.int8, Arithmetic.float32])
def test_what_else_is_asked_changes_nothing(tiny_weights: Path, how: Arithmetic) -> None:
    backend = onnx(tiny_weights, how)
    memory = backend.encode(INKS)
    images, lengths = np.array([2, 0, 2, 2, 3]), np.array([10, 6, 10, 7, 10])
    tokens = canvases(5, 10)
    together = backend.predict(memory, tokens, lengths, images)
    for row, (image, length) in enumerate(zip(images, lengths, strict=True)):
        alone = backend.encode([INKS[image]])
        single = backend.predict(alone, tokens[row : row + 1, :length], lengths[[row]], NONE)
        for one, two in zip(together, single, strict=True):
            assert np.allclose(one[row, :length], two[0], atol=1e-5)
    answers = [tokens[0], tokens[1, :6], tokens[4]]
    every = backend.evidence(backend.select(memory, [2, 0, 3]), answers)
    last = backend.evidence(backend.encode([INKS[3]]), answers[2:])
    assert every is not None and last is not None
    assert np.allclose(every[2], last[0], atol=1e-5)


def test_load_chooses_who_computes(tiny_weights: Path) -> None:
    assert type(gryphone.load(tiny_weights).backend) is OnnxBackend
    assert type(gryphone.load(tiny_weights, backend="onnx", threads=1).backend) is OnnxBackend
    assert type(gryphone.load(tiny_weights, backend="torch").backend) is TorchBackend
    with pytest.raises(ConfigError, match="backend 'tensorflow' is unknown; use onnx or torch"):
        gryphone.load(tiny_weights, backend="tensorflow")
    with pytest.raises(ConfigError, match="for 'cuda' use backend 'torch'"):
        gryphone.load(tiny_weights, device="cuda", backend="onnx")


def test_a_decoder_without_graphs_is_pytorchs(tmp_path: Path, tiny_weights: Path) -> None:
    tokenizer = read_checkpoint(tiny_weights).tokenizer
    config = replace(PRESETS["tiny"], decoder=DecoderStyle(activation="relu"))
    model = build_model(config, tuple(len(v) for v in tokenizer.vocabularies))
    save_checkpoint(tmp_path / "relu", model.state_dict(), config, tokenizer, {})
    assert type(gryphone.load(tmp_path / "relu").backend) is TorchBackend
    with pytest.raises(CheckpointError, match="built in PyTorch alone; use backend='torch'"):
        gryphone.load(tmp_path / "relu", backend="onnx")


def test_tensors_are_read_without_pytorch(tmp_path: Path, tiny_weights: Path) -> None:
    checkpoint, state = read_checkpoint(tiny_weights), load_model(tiny_weights).state_dict()
    for name, options in (
        ("whole", {}),
        ("half", {"dtype": torch.bfloat16}),
        ("i", {"int8": True}),
    ):
        save_checkpoint(
            tmp_path / name, state, checkpoint.config, checkpoint.tokenizer, {}, **options
        )
        arrays, tensors = read_arrays(tmp_path / name), read_tensors(tmp_path / name)
        for key, tensor in tensors.items():
            stored = arrays[key].astype(np.float32) * arrays.get(key + ":scale", 1)
            assert np.array_equal(stored, tensor.float().numpy()), (name, key)
    damaged = next((tmp_path / "half").glob("weights-*"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match="is damaged or truncated"):
        gryphone.load(tmp_path / "half")


@pytest.mark.parametrize("change", [{"width": 32}, {"length": 41}, {"decoder_depth": 3}])
def test_weights_of_another_size_are_refused(
    tmp_path: Path, tiny_weights: Path, change: dict[str, int]
) -> None:
    shutil.copytree(tiny_weights, tmp_path / "w")
    path = tmp_path / "w" / "config.json"
    description = json.loads(path.read_text())
    description["model"] |= change
    path.write_text(json.dumps(description))
    with pytest.raises(CheckpointError, match=r"do not fit its config.json: \S+ (is missing|has)"):
        gryphone.load(tmp_path / "w")


def test_export_writes_what_the_backend_runs(tmp_path: Path, tiny_weights: Path) -> None:
    out = tmp_path / "onnx"
    command = ["export", str(out), "--weights", str(tiny_weights), "--precision", "float32"]
    for _ in range(2):  # an earlier export is replaced
        done = CliRunner().invoke(make_app(), command)
        assert done.exit_code == 0 and str(out / "decoder.onnx") in done.output
    encoder, decoder = (
        onnxruntime.InferenceSession(out / f"{name}.onnx", providers=["CPUExecutionProvider"])
        for name in ("encoder", "decoder")
    )
    about = decoder.get_modelmeta().custom_metadata_map
    assert about["precision"] == "float32"
    description = json.loads(about["gryphone"])
    assert description == json.loads((tiny_weights / "config.json").read_text())
    backend = onnx(tiny_weights, Arithmetic.float32)
    drawing = drawing_of(INKS[0], backend.config.canvas)
    feed = {"position": drawing.position.astype(np.float32), "grid": np.float32(drawing.grid)}
    names = [each.name for each in encoder.get_outputs()]
    seen = dict(zip(names, encoder.run(None, {"pixels": drawing.pixels, **feed}), strict=True))
    tokens = canvases(2, 8)
    memory = {name: seen[name] for name in names if not name.startswith("patch")}
    said = decoder.run(["log_probs_0"], {"tokens": tokens.astype(np.int32), **memory})[0]
    expected = backend.predict(backend.encode(INKS[:1]), tokens, np.array([8, 8]), np.zeros(2, int))
    assert np.allclose(said, expected[0], atol=1e-5)


def test_export_says_what_is_wrong(tmp_path: Path, tiny_weights: Path) -> None:
    def wrong(error: type[GryphoneError], text: str, *options: str) -> None:
        command = ["export", *options, "--weights", str(tiny_weights)]
        done = CliRunner().invoke(make_app(), command)
        assert isinstance(done.exception, error) and text in str(done.exception)

    wrong(ConfigError, "--precision int4 is unknown", str(tmp_path / "a"), "--precision", "int4")
    (tmp_path / "notes.txt").write_text("mine")
    wrong(DataError, "holds other files", str(tmp_path))


ALONE = """
import sys
for name in ("torch", "scipy", "skimage"):
    sys.modules[name] = None  # whoever imports it now, fails

import json
from pathlib import Path
from typer.testing import CliRunner
import gryphone
from gryphone.cli import make_app
from gryphone.errors import MissingExtra

examples = Path(sys.argv[1])
recognizer = gryphone.load()
assert recognizer.recognize(examples / "ink" / "01-power.inkml").latex == "x^{2}"
assert recognizer.recognize(examples / "photo" / "01-power.jpg", steps=10).latex == "x^{2}"

def run(*command, given=None):
    done = CliRunner().invoke(make_app(), command, input=given)
    assert done.exit_code == 0, (command, done.output, done.exception)
    return done.stdout

assert run("recognize", str(examples / "clean" / "01-power.png")) == "x^{2}\\n"
assert json.loads(run("info", "--json"))["torch"] is None
assert run("normalize", given="$x^2$\\n") == "x ^ { 2 }\\n"
Path("answers.tsv").write_text("a\\tx^2\\tx^2\\n")
assert json.loads(run("score", "answers.tsv", "--json"))
assert "3 of 3 right" in run("demo")
import gryphone.server.app
for wanted in (lambda: gryphone.load(device="cuda"), lambda: gryphone.load(backend="torch")):
    try:
        wanted()
    except MissingExtra as error:
        assert "pip install 'gryphone[torch]'" in str(error)
    else:
        raise AssertionError("there is no PyTorch")
run("synth", "write", "--help")
done = CliRunner().invoke(make_app(), ["synth", "write", "x.txt", "--out", "x"])
assert "gryphone[synth]" in str(done.exception)
"""


def test_the_core_reads_and_its_commands_run_without_torch(tmp_path: Path) -> None:
    examples = Path(__file__).parents[1] / "examples"
    command = [sys.executable, "-c", ALONE, str(examples)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_onnx_runtime_reports_to_nobody(tmp_path: Path) -> None:
    # Where it does, importing it leaves the name of this machine in the cache of its user.
    env = {"HOME": str(tmp_path), "PYTHONPATH": str(Path(gryphone.__file__).parents[1])}
    code = "import gryphone.recognition.onnx_backend"
    subprocess.run([sys.executable, "-c", code], env=env, cwd=tmp_path, check=True)
    assert not [*tmp_path.iterdir()]
