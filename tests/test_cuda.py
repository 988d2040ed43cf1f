"""What needs a GPU: the same weights in every format, decoded in every mode."""

from __future__ import annotations

import pytest
import torch

from mars_core.about import describe_device
from mars_core.config import DecodeConfig
from mars_core.evaluation.exactness import ExactnessConfig, measure
from mars_core.evaluation.memory import Task, measured
from mars_core.models import plan
from mars_core.models.load import load
from mars_core.models.plan import Format
from mars_core.models.sizes import Sizes

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.model,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("mode", ["one", "verified"])
@pytest.mark.parametrize(
    ("kind", "compiled"), [("none", False), ("int8", False), ("nf4", False), ("none", True)]
)
def test_float32_equals_generate(kind, compiled, mode):
    loaded = load("smollm2-135m", device="cuda", dtype="float32", quantize=kind, compiled=compiled)
    assert (loaded.quantization, loaded.quantization_note) == (kind, None)
    assert describe_device(loaded).startswith("cuda")
    decode = DecodeConfig(mode=mode, max_new_tokens=48, adaptive=False)
    result = measure(loaded, ExactnessConfig(("facts",), decode, limit=4))
    assert result.tokens > 20
    assert [d for d in result.differences if not d.near_tie] == []


@pytest.mark.parametrize("kind", ["none", "nf4"])
def test_memory_is_what_was_planned(kind):
    form = Format("bfloat16", kind)
    found = measured(Task("smollm2-135m", None, "cuda", None, form, 1, 2048))
    sizes = Sizes.of(plan.config_of("smollm2-135m"))
    needs = plan.needs(sizes, form, 2048, on_cpu=False)
    assert found.bytes == pytest.approx(needs.total, rel=0.2)
