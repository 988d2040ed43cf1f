"""A tiny base model and chats to train it on."""

from __future__ import annotations

import json

import pytest
import torch

from mars_core.training.settings import Source, TrainConfig
from tests.tiny import tiny_checkpoint, tiny_llama
from tests.training.runs import lines


@pytest.fixture(scope="module")
def chats(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "chats.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in lines(60)))
    return path


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "base"
    return tiny_checkpoint(path, tiny_llama(dtype=torch.float32, tied=True), mask=True)


@pytest.fixture
def config(tmp_path, base, chats):
    """A short run; nothing is evaluated but at its ends."""
    return TrainConfig(
        data=(Source(str(chats)),),
        out=tmp_path / "run",
        model=str(base),
        device="cpu",
        dtype="float32",
        rank=4,
        lr=1e-2,
        steps=6,
        batch_size=4,
        max_length=128,
        evaluate_prompts=2,
        evaluate_tokens=8,
        validation=0.1,
        log_steps=2,
    )
