"""Known models, their download and conversion, and loading them for the decoder."""
