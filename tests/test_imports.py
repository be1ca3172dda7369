"""The floor plan: which room may import which, no cycles, and what inference loads."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "gryphone"
HEAVY = ("accelerate", "pyarrow", "matplotlib", "fastapi", "uvicorn", "yaml", "scipy", "pandas")

# What each room may import besides itself. The spine are the modules of the top level.
BELOW = {"spine", "reading", "photo", "latex", "writers"}
ARROWS: dict[str, set[str]] = {
    "spine": {"training.objective", "rivals"},  # names in the table of kinds, imported by users
    "rivals": {"spine", "latex"},
    "latex": {"spine"},
    "writers": {"spine", "latex"},
    "photo": {"spine"},
    "reading": {"spine", "photo"},
    "recognition": BELOW,
    "data": BELOW,
    "synth": BELOW | {"data"},
    "training": BELOW | {"data", "synth", "rivals", "recognition.torch_backend"},  # to validate
    "scoring": BELOW | {"data", "recognition"},
    "server": BELOW | {"recognition"},
    "page": BELOW | {"recognition"},
    "release": BELOW | {"data", "synth", "recognition", "training", "scoring"},
    "studies": BELOW | {"data", "synth", "recognition", "training", "scoring", "release"},
    "cli": {
        *BELOW,
        "data",
        "synth",
        "recognition",
        "training",
        "scoring",
        "server",
        "studies",
        "page",
    },
}


def modules() -> dict[str, Path]:
    """Every module by its name without `gryphone.`; the front door and the doors of rooms apart."""
    paths = {p.relative_to(PACKAGE): p for p in PACKAGE.rglob("*.py")}
    named = {".".join(r.with_suffix("").parts): p for r, p in paths.items()}
    return {name.removesuffix(".__init__"): p for name, p in named.items() if name != "__init__"}


def imported(path: Path, known: dict[str, Path], strings: bool) -> Iterator[str]:
    """The modules a file names: in imports on top, in functions, for types, and in strings."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif strings and isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = re.fullmatch(r"(gryphone(?:\.\w+)+)(:\w+)?", node.value)
            names = [found[1]] if found else []  # as import_module would take it
        for name in names:
            if name in ("gryphone", "gryphone.load", "gryphone.Recognizer", "gryphone.Result"):
                name = "gryphone.recognition.recognizer"  # what the front door leads to
            inner = name.removeprefix("gryphone.")
            if name == inner:
                continue
            while inner and inner not in known:
                inner = inner.rpartition(".")[0]
            if inner:
                yield inner


def graph(strings: bool = True) -> dict[str, set[str]]:
    known = modules()
    return {name: {*imported(path, known, strings)} - {name} for name, path in known.items()}


def room_of(module: str) -> str:
    first = module.partition(".")[0]
    return first if (PACKAGE / first).is_dir() else "spine"


def test_the_arrows_between_the_rooms_hold() -> None:
    wrong = [
        f"{module} imports {other}"
        for module, others in graph().items()
        for other in others
        if module != "__main__" and room_of(other) != room_of(module)
        if not ARROWS[room_of(module)] & {room_of(other), other}
    ]
    assert not wrong


def test_no_module_imports_itself_in_a_circle() -> None:
    # What the table of kinds names is imported by whoever asks for it, never by the table.
    left = graph(strings=False)
    while leaves := {m for m, others in left.items() if not others & left.keys()}:
        left = {m: others for m, others in left.items() if m not in leaves}
    assert not left, {m: sorted(others & left.keys()) for m, others in left.items()}


def test_the_spine_is_a_dozen_nouns() -> None:
    spine = {m for m in modules() if room_of(m) == "spine"} - {"__main__"}
    assert len(spine) <= 12, sorted(spine)


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
    loaded = modules_after("import gryphone.kinds, gryphone.recognition.recognizer")
    assert not loaded & {"onnxruntime", "tarfile", "PIL", "defusedxml"}
    loaded |= modules_after("import gryphone\ngryphone.load().recognize([[[0, 0], [0, 9]]])")
    assert not loaded & {*HEAVY, "torch", "skimage"}
    ours = {m for m in loaded if m.startswith("gryphone.")}
    for part in ("training", "synth", "data", "scoring", "server", "studies", "release", "cli"):
        assert not any(m.startswith(f"gryphone.{part}") for m in ours), (part, ours)


def test_training_runs_without_inference_extras() -> None:
    missing = ("rapidfuzz", "defusedxml", "latex2mathml", "pydantic", "fastapi", "uvicorn")
    blocked = f"import sys\nsys.modules.update(dict.fromkeys({missing!r}))"
    for name in ("training.train", "studies.ablation", "studies.predictions", "studies.speed"):
        assert f"gryphone.{name}" in modules_after(f"{blocked}\nimport gryphone.{name}")
