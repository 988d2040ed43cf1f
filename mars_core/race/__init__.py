"""A race: one prompt decoded in several ways, one after the other, and shown side by side."""
