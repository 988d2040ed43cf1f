"""MARS (Mask AutoRegreSsion) decoding: several tokens per forward pass, every decision recorded."""

__version__ = "0.1.0"
