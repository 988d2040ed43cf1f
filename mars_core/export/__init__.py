"""Recordings in other forms: a page of its own, a table, a picture, an animation. No torch."""
