"""LaTeX: lexer, tree, named spellings, validity and MathML."""
