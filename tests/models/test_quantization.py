"""Weights in 8 and 4 bits: the same model for every way of decoding, and no crash without them."""

from __future__ import annotations

import pytest
import torch
from bitsandbytes.nn.modules import Linear4bit, Linear8bitLt
from torch import nn

from mars_core.baselines import transformers_generate
from mars_core.cache import Fed, Session
from mars_core.config import Caching, DecodeConfig
from mars_core.decode import decode_batch
from mars_core.engine import Engine
from mars_core.events import Step
from mars_core.models import hardware, quantization
from mars_core.models.load import load
from mars_core.models.memory import weight_bytes
from mars_core.models.sizes import Sizes
from mars_core.packing import Int8Linear
from mars_core.reference import reference_decode
from mars_core.row import Request
from mars_core.trace import Message
from tests.tiny import edit, save_adapter, tiny_checkpoint, tiny_llama, tiny_qwen2

PLAIN = {"device": "cpu", "dtype": "float32", "packing": False}
KINDS = ("int8", "nf4")
PROMPT = [5, 60, 70, 80, 90, 61, 72]


def sharp(**shape):
    return tiny_llama(seed=5, sharpen=6, dtype=torch.float32, **shape)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_checkpoint(tmp_path_factory.mktemp("q") / "sharp", sharp(tied=True), mask=True)


@pytest.fixture(scope="module", params=KINDS)
def quantised(folder, request):
    return load(str(folder), quantize=request.param, **PLAIN)


def logits(loaded, ids):
    with torch.inference_mode():
        return loaded.model(torch.tensor([ids])).logits[0].float()


def produced(events, row=0):
    steps = [event for event in events if isinstance(event, Step) and event.row == row]
    return [token.token for step in steps for token in step.tokens]


def test_linear_layers_are_quantised_and_the_head_is_not(quantised):
    kind = {"int8": Linear8bitLt, "nf4": Linear4bit}[quantised.quantization]
    model = quantised.model
    layers = [m for m in model.modules() if isinstance(m, nn.Linear) and m is not model.lm_head]
    assert len(layers) == 14
    assert all(type(layer) is kind for layer in layers)
    assert type(model.lm_head) is nn.Linear
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert quantised.weights.endswith(f"quantised to {quantised.quantization.replace('nf', 'NF')}")
    assert quantised.quantization_note is None
    assert not quantised.packed


def test_it_is_nearly_the_same_model(folder, quantised):
    plain = load(str(folder), **PLAIN)
    wanted, got = logits(plain, PROMPT), logits(quantised, PROMPT)
    far = {"int8": 0.05, "nf4": 0.6}[quantised.quantization]
    assert 0 < (got - wanted).norm() / wanted.norm() < far
    assert (
        quantised.parameters
        == plain.parameters
        == sum(p.numel() for p in sharp(tied=True).parameters())
    )


def test_8_bits_in_bfloat16_are_computed_by_torch(folder):
    """Weights alone are in 8 bits there, so that it is nearer than what bitsandbytes computes."""
    plain = load(str(folder), **PLAIN)
    ours = load(str(folder), quantize="int8", device="cpu", dtype="bfloat16")
    layers = [m for m in ours.model.modules() if isinstance(m, Int8Linear)]
    assert len(layers) == 2 * 4  # of each layer: queries to values, output, gate and up, down
    wanted = logits(plain, PROMPT)
    assert 0 < (logits(ours, PROMPT) - wanted).norm() / wanted.norm() < 0.05
    assert (ours.quantization, ours.packed) == ("int8", True)
    theirs = load(str(folder), quantize="int8", device="cpu", dtype="bfloat16", packing=False)
    assert not theirs.packed
    assert not [m for m in theirs.model.modules() if isinstance(m, Int8Linear)]
    session = ours.session()
    session.prefill([PROMPT])
    (found,) = session.forward([Fed([7], [7], head=[0])])
    wanted = logits(plain, [*PROMPT, 7])[-1]
    assert (found.float() - wanted).norm() / wanted.norm() < 0.05


def test_what_it_takes_is_what_was_planned(folder, quantised):
    sizes = Sizes.of(quantised.model.config)
    held = quantised.weight_bytes
    # of so small a model, tables of numbers that NF4 uses once per layer count
    tables = 0 if quantised.quantization == "int8" else 14 * 2 * 272 * 4
    planned = sizes.weights(torch.float32, quantised.quantization)
    assert planned <= held <= planned + tables + 512
    plain = load(str(folder), **PLAIN)
    assert sizes.weights(torch.float32) <= plain.weight_bytes <= sizes.weights(torch.float32) + 512
    assert held < plain.weight_bytes


@pytest.mark.parametrize("kind", KINDS)
def test_what_follows_changes_nothing_before(folder, kind):
    """Masks must not reach the token before them, also where rows are quantised together."""
    loaded = load(str(folder), quantize=kind, **PLAIN)
    with torch.no_grad():
        for name, weight in loaded.model.named_parameters():
            if name.endswith("layernorm.weight"):
                weight[3] *= 40  # an outlier: LLM.int8() would take its column out for all rows
    session = Session(loaded.model, 256)
    session.prefill([PROMPT])
    (alone,) = session.forward([Fed([7], [7], head=[0])])
    for others in ([4, 4, 4], [200, 9, 33, 4, 4, 4, 4, 4]):
        ids = [7, *others]
        (beside,) = session.forward([Fed(ids, range(7, 7 + len(ids)), head=[0])])
        assert torch.allclose(alone, beside, atol=2e-4)


@pytest.mark.parametrize("mode", ["one", "tau", "verified"])
@pytest.mark.parametrize("strategy", ["cursor", "block", "none"])
def test_every_cache_gives_what_the_oracle_gives(quantised, mode, strategy):
    if (mode, strategy) in (("verified", "block"), ("verified", "none")):
        pytest.skip("verified rows need a cursor")
    config = DecodeConfig(mode=mode, tau=0.35, max_new_tokens=14, adaptive=False)
    caching = Caching(strategy, 8)
    prompts = [PROMPT, PROMPT[:4]]
    session = Session(quantised.model, 256, 2, 128)
    requests = [Request(prompt, config) for prompt in prompts]
    events = list(decode_batch(session, requests, quantised.special, caching))
    for row, prompt in enumerate(prompts):
        own = DecodeConfig(mode="one", max_new_tokens=14) if mode == "verified" else config
        block = 8 if strategy == "block" else None
        wanted = reference_decode(
            quantised.model, prompt, own, quantised.special, row=row, cache_block=block
        )
        assert produced(events, row) == [token for forward in wanted for token in forward]


def test_one_token_is_generate(quantised):
    config = DecodeConfig(mode="one", max_new_tokens=16)
    session = Session(quantised.model, 256)
    events = list(decode_batch(session, [Request(PROMPT, config)], quantised.special))
    theirs = transformers_generate(quantised, PROMPT, 16)
    assert produced(events) == list(theirs)[: len(produced(events))]


@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_is_merged_before(tmp_path, folder, kind):
    adapter = str(save_adapter(tmp_path / "lora", sharp(tied=True)))
    merged = load(str(folder), adapter=adapter, **PLAIN)
    path = tiny_checkpoint(tmp_path / "merged", merged.model, mask=True)
    direct = load(str(path), quantize=kind, **PLAIN)
    through = load(str(folder), adapter=adapter, quantize=kind, **PLAIN)
    assert torch.equal(logits(direct, PROMPT), logits(through, PROMPT))
    assert through.adapter == "lora"
    assert not torch.allclose(
        logits(direct, PROMPT), logits(load(str(folder), quantize=kind, **PLAIN), PROMPT)
    )


def test_end_tokens_of_the_folder_are_kept(tmp_path):
    path = tiny_checkpoint(tmp_path / "q", tiny_qwen2(dtype=torch.float32), mask=True)
    edit(path / "generation_config.json", eos_token_id=[2, 0])
    adapter = str(save_adapter(tmp_path / "lora", tiny_qwen2(dtype=torch.float32)))
    for options in ({}, {"adapter": adapter}):
        assert load(str(path), quantize="nf4", **options, **PLAIN).special.eos_ids == {2, 0}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_number_formats(folder, dtype):
    loaded = load(str(folder), quantize="nf4", device="cpu", dtype=dtype)
    assert loaded.model.dtype == loaded.dtype == getattr(torch, dtype)
    assert logits(loaded, PROMPT).isfinite().all()


@pytest.mark.parametrize(
    ("hidden", "dtype", "wanted"),
    [(64, torch.bfloat16, True), (64, torch.float32, False), (32, torch.bfloat16, False)],
)
def test_the_fused_kernel_is_for_what_it_can_do(monkeypatch, hidden, dtype, wanted):
    """On CPUs with bfloat16 it computes in bfloat16 only, and fails for layers of 32 inputs."""
    layer = quantization._layer("nf4", nn.Linear(hidden, 64, bias=False, dtype=dtype))
    layer.support_avx512bf16_for_cpu = True
    used = []
    monkeypatch.setattr(type(layer), "forward", lambda self, x: used.append(x.shape))
    quantization.settle(layer.eval(), dtype)
    assert layer.support_avx512bf16_for_cpu is wanted
    assert used == ([(1, hidden)] if wanted else [])


def test_memory_is_counted_the_same_after_use(folder):
    path = tiny_checkpoint(folder.parent / "even", sharp(heads=8, kv_heads=4), mask=True)
    loaded = load(str(path), quantize="nf4", device="cpu", dtype="bfloat16")
    before = weight_bytes(loaded.model)
    logits(loaded, PROMPT)
    assert weight_bytes(loaded.model) == before == loaded.weight_bytes


def test_a_trace_says_how_weights_are_kept(quantised):
    said = [Message(role="user", content="Hello!")]
    header = next(Engine(quantised).generate(said, DecodeConfig(max_new_tokens=20)))
    assert header.model.quantization == quantised.quantization
    assert header.dtype == "float32"
    assert header.memory == {
        "weights": quantised.weight_bytes,
        "cache": (header.prompt.tokens + 20) * 2 * 2 * 2 * 8 * 4,
    }


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (ImportError("no module"), "bitsandbytes is not installed"),
        (RuntimeError("no kernel\nfor this"), "cannot compute nf4 on this cpu device (no kernel"),
        (None, "computes nf4 wrongly"),
    ],
)
def test_without_bitsandbytes_weights_stay_as_they_are(folder, monkeypatch, failure, words):
    def layer(kind, plain):
        if failure is not None:
            raise failure
        return nn.Linear(plain.in_features, plain.out_features, bias=False)

    monkeypatch.setattr(quantization, "_layer", layer)
    loaded = load(str(folder), quantize="nf4", **PLAIN)
    assert loaded.quantization == "none"
    assert words in loaded.quantization_note
    assert loaded.quantization_note.endswith("so the weights are in float32")
    assert len(loaded.quantization_note.splitlines()) == 1
    assert torch.equal(logits(loaded, PROMPT), logits(load(str(folder), **PLAIN), PROMPT))


def test_what_cannot_be_had_is_said(folder, problem):
    assert "choose one of none, int8, nf4" in problem(load, str(folder), quantize="fp4", **PLAIN)
    message = problem(load, str(folder), quantize="nf4", device="cpu", dtype="float64")
    assert "choose another dtype" in message


def test_packing_is_for_plain_weights(folder, monkeypatch):
    monkeypatch.setattr(hardware, "fastest", lambda dtype, device, allowed: (allowed, 1.0))
    packed = load(str(folder), device="cpu", dtype="float32")
    assert packed.packed
    # the head, which shares its weight with the embedding, is laid out once more
    plain = load(str(folder), **PLAIN)
    head = plain.model.lm_head.weight.nbytes
    assert packed.weight_bytes == plain.weight_bytes + head
    assert not load(str(folder), quantize="nf4", device="cpu", dtype="float32").packed
