"""Inference stays light: what `import gryphone` and the recogniser bring in."""

import subprocess
import sys

HEAVY = ("accelerate", "pyarrow", "matplotlib", "fastapi", "uvicorn", "yaml", "scipy", "pandas")


def modules_after(code: str) -> set[str]:
    out = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules, sep='\\n')"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return set(out.splitlines())


def test_the_package_alone_imports_nothing_heavy() -> None:
    loaded = modules_after("import gryphone")
    assert not loaded & {*HEAVY, "torch", "numpy", "skimage"}


def test_inference_imports_no_training_server_or_plotting_code() -> None:
    loaded = modules_after("import gryphone.recognition.recognizer")
    assert not loaded & set(HEAVY)
    ours = {m for m in loaded if m.startswith("gryphone.")}
    for part in ("training", "synth", "data.packed", "data.store", "server"):
        assert not any(m.startswith(f"gryphone.{part}") for m in ours), (part, ours)


def test_training_runs_without_inference_extras() -> None:
    missing = ("rapidfuzz", "defusedxml", "latex2mathml", "pydantic")
    code = f"import sys\nsys.modules.update(dict.fromkeys({missing}))"
    code += "\nimport gryphone.training.train, gryphone.cli"
    assert "gryphone.training.train" in modules_after(code)
