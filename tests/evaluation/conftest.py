"""A small model for evaluations whose answers have some variety."""

from __future__ import annotations

import pytest

from mars_core.models.load import load
from tests.tiny import tiny_checkpoint, tiny_llama
from tests.training.runs import PLAIN


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    model = tiny_llama(seed=5, sharpen=6)
    return str(tiny_checkpoint(tmp_path_factory.mktemp("evaluation") / "tiny", model, mask=True))


@pytest.fixture(scope="session")
def loaded(folder):
    return load(folder, **PLAIN)
