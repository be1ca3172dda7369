"""A formula's tree, written for where people are: Typst, Word, SymPy, a screen reader."""
