"""What an installed wheel must hold: `make dist` asks in an environment that has nothing else."""

import sys
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import gryphone

wheel = distribution("gryphone")
home = Path(gryphone.__file__).parent
licences = wheel.metadata.get_all("License-File") or []
texts = {name: wheel.read_text(f"licenses/{name}") or "" for name in licences}
checks = {
    "comes from the wheel": home.parent.name == "site-packages",
    "brings no PyTorch": find_spec("torch") is None,
    "has weights": any(home.glob("weights/*.safetensors")),
    "names the licences": wheel.metadata["License-Expression"].count("AND") == 2,
    "has the code's licence": "Apache License" in texts.get("LICENSE", ""),
    "has KaTeX's licence": "MIT" in texts.get("gryphone/server/static/katex/LICENSE", ""),
    "has the weights' licence": "CC BY-NC-SA 3.0" in texts.get("gryphone/weights/LICENSE", ""),
}
wrong = [name for name, right in checks.items() if not right]
print(f"gryphone {wheel.version}: " + "; ".join(checks))
sys.exit(f"gryphone as installed does not pass: {'; '.join(wrong)}" if wrong else 0)
