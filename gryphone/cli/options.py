"""What several commands share: options, and titles of tables."""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON to stdout.")]
RATE_TITLES = {"em": "EM", "le1": "≤1", "le2": "≤2", "le3": "≤3", "cer": "CER", "ser": "SER"}
