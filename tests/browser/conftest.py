"""Fixtures of the browser tests."""

import pytest
import torch

from mars_core.engine import Engine
from mars_core.models.load import load
from tests.browser.harness import Paced, browser, page, serve  # noqa: F401 (browser, page: fixtures)
from tests.tiny import tiny_checkpoint, tiny_llama


@pytest.fixture(scope="session")
def tiny_address(tmp_path_factory):
    # sharpened, so that masks are accepted now and then; context for the prompt and 128 tokens
    model = tiny_llama(sharpen=3.0, dtype=torch.float32)
    folder = tiny_checkpoint(tmp_path_factory.mktemp("tiny"), model, mask=True)
    demo = serve(Paced(Engine(load(str(folder), device="cpu", dtype="float32"))))
    yield demo.local_url
    demo.close()
