"""Packed layers, also in 8 bits, give what plain ones give: alone, joined, and in every model."""

from __future__ import annotations

import weakref
from copy import deepcopy

import pytest
import torch
from bitsandbytes.nn.modules import Int8Params, Linear8bitLt
from torch import nn

from mars_core.cache import Session
from mars_core.models.memory import weight_bytes
from mars_core.packing import (
    Int8Linear,
    PackedLinear,
    Part,
    pack_int8,
    pack_linears,
    replace,
    side_by_side,
)
from mars_core.trunk import Whole
from mars_core.window import Window
from tests.tiny import tiny_llama, tiny_qwen2, tiny_qwen3

MODELS = {"llama": tiny_llama, "qwen2": tiny_qwen2, "qwen3": tiny_qwen3}
PROMPT = [5, 9, 7, 30]


class Gated(nn.Module):
    """Two layers of one input, as in a model."""

    def __init__(self, biases=(False, False), inputs=(24, 24)):
        super().__init__()
        self.gate_proj = nn.Linear(inputs[0], 16, bias=biases[0]).requires_grad_(False)
        self.up_proj = nn.Linear(inputs[1], 32, bias=biases[1]).requires_grad_(False)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (2, 5), (1, 40)])
def test_a_packed_layer_is_the_layer(bias, shape):
    layer = nn.Linear(24, 56, bias=bias).requires_grad_(False)
    x = torch.randn(*shape, 24)
    assert torch.allclose(PackedLinear(layer)(x), layer(x), atol=1e-5)


@pytest.mark.parametrize("biases", [(False, False), (True, True)])
def test_parts_of_one_are_the_layers(biases):
    plain = Gated(biases)
    packed = deepcopy(plain)
    pack_linears(packed)
    assert isinstance(packed.gate_proj, Part)
    assert packed.gate_proj.joined is packed.up_proj.joined
    for x in torch.randn(3, 2, 5, 24):
        both = [plain.gate_proj(x), plain.up_proj(x)]
        for ours, theirs in zip((packed.gate_proj(x), packed.up_proj(x)), both, strict=True):
            assert torch.allclose(ours, theirs, atol=1e-5)
        for layers in (packed, plain):
            found = side_by_side((layers.gate_proj, layers.up_proj), x)
            assert torch.allclose(found, torch.cat(both, dim=-1), atol=1e-5)


def test_nothing_is_kept_for_another_input():
    """Whatever order the parts are asked in, and where some are not asked at all."""
    plain = Gated()
    packed = deepcopy(plain)
    pack_linears(packed)
    first, second = torch.randn(2, 1, 24)
    for name, x in [
        ("gate_proj", first),
        ("gate_proj", second),
        ("up_proj", first),
        ("up_proj", second),
        ("gate_proj", first),
    ]:
        assert torch.allclose(getattr(packed, name)(x), getattr(plain, name)(x), atol=1e-5)
    packed.up_proj(first)
    assert packed.up_proj.joined._known is None  # so that no activations are held


@pytest.mark.parametrize("layers", [Gated((True, False)), Gated(inputs=(24, 12))])
def test_layers_that_cannot_be_joined_are_packed_alone(layers):
    pack_linears(layers)
    assert {type(layer) for layer in layers.children()} == {PackedLinear}


def test_layers_go_one_by_one():
    """What is replaced is not held until all are: memory would have to hold the model twice."""
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(3)))
    weights = [weakref.ref(layer.weight) for layer in model]
    alive = []

    def packed(layer):
        alive.append(sum(weight() is not None for weight in weights))
        return nn.Identity()

    replace(model, nn.Linear, packed)
    assert alive == [3, 2, 1]


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("ours", [True, False])
def test_a_packed_model_says_the_same(kind, ours):
    """Through our own forward and through that of transformers."""
    plain = MODELS[kind](seed=3, dtype=torch.float32)
    packed = deepcopy(plain)
    pack_linears(packed)
    assert weight_bytes(packed) == weight_bytes(plain)
    found = []
    for model in (plain, packed):
        session = Session(model, 256)
        if not ours:
            session._trunk = Whole(model, session._layers)
        session.prefill([PROMPT])
        window = Window((3, 4), (11, 12), (2, 2, 1), len(PROMPT), 2)
        found += session.forward([window.fed()])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)


def in_8_bits(inputs, outputs, bias):
    """A layer as bitsandbytes quantises it, and a plain one of the weights that it stands for."""
    torch.manual_seed(inputs + outputs)
    layer = Linear8bitLt(inputs, outputs, bias=bias, has_fp16_weights=False)
    weight = torch.randn(outputs, inputs)
    layer.weight = Int8Params(weight, requires_grad=False, has_fp16_weights=False)
    layer = layer.to("cpu")
    plain = nn.Linear(inputs, outputs, bias=bias)
    with torch.no_grad():
        plain.weight.copy_(layer.weight.detach() * layer.weight.SCB[:, None] / 127)
        if bias:
            layer.bias = nn.Parameter(plain.bias.detach().to(torch.bfloat16))
    return layer, plain


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 4, 8, 9, 40])
def test_8_bits_give_what_their_weights_stand_for(rows, bias):
    """Also several layers as one, whose scales differ."""
    pairs = [in_8_bits(64, outputs, bias) for outputs in (56, 7)]
    x = torch.randn(1, rows, 64, dtype=torch.bfloat16)
    got = Int8Linear(*(layer for layer, _ in pairs))(x)
    with torch.no_grad():
        wanted = torch.cat([plain(x.float()) for _, plain in pairs], dim=-1)
    assert got.shape == (1, rows, 63)
    assert got.dtype == torch.bfloat16
    assert (got.float() - wanted).norm() < 5e-3 * wanted.norm()


@pytest.mark.parametrize(("inputs", "kind"), [(32, Int8Linear), (48, Linear8bitLt)])
def test_what_torch_cannot_take_in_8_bits_stays(inputs, kind):
    model = nn.Sequential(in_8_bits(inputs, 8, False)[0], in_8_bits(64, 8, False)[0])
    assert pack_int8(model) == (kind is Int8Linear)
    assert {type(layer) for layer in model} == {kind}


def test_what_is_left_has_memory_of_its_own():
    """Else the file that all weights were read from stays mapped, and in memory."""
    model = tiny_llama(seed=1).float()
    before = [x.data for x in (*model.parameters(), *model.buffers())]
    pack_linears(model)
    left = {x.data_ptr() for x in (*model.parameters(), *model.buffers())}
    assert left.isdisjoint({x.data_ptr() for x in before})
