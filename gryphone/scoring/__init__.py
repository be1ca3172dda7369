"""How good answers are: by tokens, by graphs, over whole data sets."""
