"""The package as its users meet it: licences, names, help, types, and what a wheel holds."""

import pydoc
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from inkmaker import power

import gryphone
from gryphone.errors import ConfigError
from gryphone.recognition.question import Ask, Options
from gryphone.recognition.recognizer import Recognizer

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_weights_licence_is_in_the_metadata_and_beside_them() -> None:
    assert "CC-BY-NC-SA-3.0" in PROJECT["project"]["license"]
    texts = {name: (ROOT / name).read_text() for name in PROJECT["project"]["license-files"]}
    own = texts["gryphone/weights/LICENSE"]
    assert "non-commercial purposes only" in own
    assert "creativecommons.org/licenses/by-nc-sa/3.0" in own
    assert "weights/*" in PROJECT["tool"]["setuptools"]["package-data"]["gryphone"]


def test_an_editable_install_is_a_path_that_type_checkers_follow() -> None:
    # Without this setuptools installs an import hook, which mypy does not run.
    assert PROJECT["tool"]["setuptools"]["package-dir"] == {"": "."}


def test_lazy_names_are_listed_and_explained() -> None:
    names = {"Ask", "Encoded", "GryphoneError", "Recognizer", "Result", "load"}
    assert names <= set(dir(gryphone)) and names <= set(gryphone.__all__)
    text = pydoc.render_doc(gryphone, renderer=pydoc.plaintext)
    assert "load(path:" in text and "class Result(" in text
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        gryphone.laod  # type: ignore[attr-defined]  # noqa: B018


def test_what_is_printed_in_a_notebook_is_short(recognizer: Recognizer) -> None:
    encoded = recognizer.encode(power())
    result = encoded.decode(steps=2, n_best=3)
    assert repr(recognizer).startswith("Recognizer('") and len(repr(recognizer)) < 100
    assert repr(encoded) == f"Encoded({power().id!r}, {len(power().strokes)} strokes)"
    assert repr(result).startswith(f"Result({result.latex!r}, confidence=0.")
    assert len(repr(result)) < len(repr(result.latex)) + 200


def test_options_are_those_of_ask() -> None:
    assert [*Options.__annotations__] == [f.name for f in fields(Ask)]


def test_an_unknown_option_names_the_nearest(recognizer: Recognizer) -> None:
    with pytest.raises(ConfigError, match=r"^option 'stepz' is unknown; did you mean steps\?$"):
        recognizer.recognize(power(), stepz=3)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"option 'zzz' is unknown; choose among steps, "):
        recognizer.encode(power()).decode(zzz=3)  # type: ignore[call-arg]


USED = """
import gryphone

recognizer = gryphone.load()
result: gryphone.Result = recognizer.recognize("x.png", steps=3, lock={0: "x"})
recognizer.recognize("x.png", stepz=3)
recognizer.recognize_many(["x.png"], seed="one")
recognizer.encode("x.png").decode(n_bets=3)
gryphone.laod()
"""


def test_type_checkers_see_wrong_options(tmp_path: Path) -> None:
    (tmp_path / "used.py").write_text(USED)
    # As installed, but without the packages around: theirs are no errors of the user's.
    alone = ["--follow-imports=silent", "--no-site-packages", "--ignore-missing-imports"]
    command = [sys.executable, "-m", "mypy", "--strict", *alone, "used.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env={"MYPYPATH": str(ROOT)}, capture_output=True, text=True
    )
    lines = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.split(":")[1] for line in lines] == ["6", "7", "8", "9"], done.stdout + done.stderr
    assert 'Unexpected keyword argument "stepz"' in lines[0]


def test_the_citation_names_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == gryphone.__version__
    assert cited["license"] in PROJECT["project"]["license"]
    assert {"cff-version", "title", "message", "authors"} <= cited.keys()
