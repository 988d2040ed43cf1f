"""Our own forward gives what transformers' forward gives, in every shape that decoding feeds it."""

from __future__ import annotations

import pytest
import torch

from mars_core.cache import Session
from mars_core.trunk import Lean, Whole
from mars_core.window import Window
from tests.tiny import tiny_llama, tiny_qwen2, tiny_qwen3

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
MODELS = {
    "llama": lambda **options: tiny_llama(seed=1, **options),
    "llama, no shared heads": lambda **options: tiny_llama(seed=2, kv_heads=4, **options),
    "llama, one head of keys": lambda **options: tiny_llama(seed=3, kv_heads=1, **options),
    "qwen2": lambda **options: tiny_qwen2(seed=4, **options),
    "qwen3": lambda **options: tiny_qwen3(seed=5, heads=6, kv_heads=2, **options),
}
PROMPTS = [[5, 9, 7, 30], [8, 6], [40, 41, 42, 43, 44, 45, 46]]
WINDOWS = [
    Window((3,), (), (0,), 0, None),  # AR
    Window((3, 4), (), (3,), 0, 2),  # masks
    Window((3,), (11, 12), (2, 2, 1), 0, 2),  # drafts, with masks that see different things
]


def both(model, prompts, windows):
    """Logits of every row that is fed, by transformers and by us."""
    found = []
    for kind in (Whole, Lean):
        session = Session(model, 256, len(prompts))
        session._trunk = kind(model, session._layers)
        session.prefill(prompts)
        fed = [
            Window(w.pending, w.drafts, w.groups, len(prompt), w.mask_id).fed()
            for w, prompt in zip(windows, prompts, strict=True)
        ]
        found.append(session.forward(fed))
        session.commit([range(1)] * len(fed))
    return found


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("window", range(len(WINDOWS)))
def test_one_sequence(kind, window):
    whole, lean = both(MODELS[kind](), PROMPTS[:1], [WINDOWS[window]])
    torch.testing.assert_close(lean[0], whole[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", MODELS)
def test_many_sequences(kind):
    """Of different lengths, fed differently much."""
    whole, lean = both(MODELS[kind](), PROMPTS, WINDOWS)
    for ours, theirs in zip(lean, whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    assert not torch.allclose(lean[0][-1], lean[1][-1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_number_formats(dtype):
    whole, lean = both(tiny_qwen3(seed=5, dtype=dtype), PROMPTS, WINDOWS)
    for ours, theirs in zip(lean, whole, strict=True):
        tolerance = 20 * torch.finfo(dtype).eps
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * theirs.std())


def test_positions_that_are_scaled():
    model = tiny_llama(seed=1)
    plain, _ = both(model, PROMPTS[:1], WINDOWS[1:2])
    model.config.rope_parameters = LLAMA3_ROPE
    scaled = type(model)(model.config).to(torch.float64).eval()
    scaled.load_state_dict(model.state_dict())
    whole, lean = both(scaled, PROMPTS[:1], WINDOWS[1:2])
    torch.testing.assert_close(lean[0], whole[0], rtol=1e-10, atol=1e-10)
    assert not torch.allclose(lean[0], plain[0])


def test_which_one_runs():
    for kind in MODELS.values():
        model = kind()
        assert type(Session(model, 256)._trunk) is Lean
    eager = tiny_llama()
    eager.set_attn_implementation("eager")
    gelu = tiny_llama()
    gelu.config.hidden_act = "gelu"
    for model in (eager, gelu):
        assert type(Session(model, 256)._trunk) is Whole
