"""Measurements: every published number comes from a command here."""
