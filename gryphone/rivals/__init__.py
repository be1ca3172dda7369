"""Other kinds of decoder on the same encoder, tokens and training, to compare diffusion with."""
