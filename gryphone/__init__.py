"""GryphOne: handwritten mathematics to LaTeX by symbol-aware masked diffusion."""

__version__ = "0.1.0"
