"""Handwriting for any formula: glyphs of real writers set into TeX's and real inks' layouts."""
