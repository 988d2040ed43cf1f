"""Tiny random models and checkpoints with a real tokenizer, for tests that need no download."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers import models as tokenizer_models
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

M = TypeVar("M", bound=PreTrainedModel)

VOCAB = 320
HEAD_DIM = 8
EOS = "<|im_end|>"
MASK = "<|mask|>"
# ids 0..4, so that they are the same with and without MASK
SPECIALS = ("<|endoftext|>", "<|im_start|>", EOS, "<empty_output>", MASK)
EOS_ID = SPECIALS.index(EOS)
MASK_ID = SPECIALS.index(MASK)
MERGES = (
    "t h", "Ġ th", "Ġth e", "i n", "a n", "an d", "Ġ and", "e r", "o n", "r e", "Ġ a", "Ġ w", "Ġ s",
    "e n", "o r", "a t", "l l", "in g", "u s", "s t", "Ġ is", "i s", "Ċ Ċ", "Ġ o", "o f", "Ġ of",
)  # fmt: skip
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tiny_specials(*, mask: bool) -> tuple[str, ...]:
    """The special tokens by id; without `<|mask|>` its id is an ordinary filler."""
    return SPECIALS if mask else (*SPECIALS[:MASK_ID], "<filler>")


def vocabulary(specials: tuple[str, ...] = SPECIALS) -> tuple[list[str], list[str]]:
    """Tokens by id (specials, all bytes, merged pieces) and the merges that make the pieces."""
    tokens = [*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    merges = []
    for merge in MERGES:
        left, right = merge.split(" ")
        if left in tokens and right in tokens and left + right not in tokens:
            tokens.append(left + right)
            merges.append(merge)
    return tokens, merges


def tiny_tokenizer(*, mask: bool = False) -> PreTrainedTokenizerFast:
    """Byte-level BPE of under 300 tokens with a ChatML template: any text round-trips.

    mask: whether `<|mask|>` is one of its tokens.
    """
    specials = tiny_specials(mask=mask)
    return byte_level(
        *vocabulary(specials),
        specials,
        bos_token="<|im_start|>",
        clean_up_tokenization_spaces=False,
        model_max_length=256,
    )


def byte_level(
    tokens: Sequence[str], merges: Sequence[str], specials: Sequence[str], **options: Any
) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of these tokens by id, with a ChatML template.

    specials: names of special tokens, added behind the others where they are not among them.
    """
    model = tokenizer_models.BPE(
        vocab={token: index for index, token in enumerate(tokens)},
        merges=[(left, right) for left, right in (merge.split(" ") for merge in merges)],
    )
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(name, special=True) for name in specials])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=EOS, pad_token="<|endoftext|>", **options
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _common(
    vocab: int = VOCAB, layers: int = 2, heads: int = 4, kv_heads: int = 2, tied: bool = False
) -> dict[str, object]:
    return {
        "vocab_size": vocab,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "hidden_size": heads * HEAD_DIM,
        "intermediate_size": heads * HEAD_DIM * 2,
        "max_position_embeddings": 256,
        "tie_word_embeddings": tied,
        "bos_token_id": 1,
        "eos_token_id": EOS_ID,
        "pad_token_id": 0,
        # gain of about 1 per layer: attention and context matter, unlike with the default 0.02
        "initializer_range": (heads * HEAD_DIM) ** -0.5,
        "attn_implementation": "sdpa",
    }


def _finish(model: M, seed: int, sharpen: float, dtype: torch.dtype) -> M:
    """Redraw every weight from `seed` and scale the logits by `sharpen` (through the last norm)."""
    generator = torch.Generator().manual_seed(seed)
    width = model.config.hidden_size
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                continue
            noise = torch.randn(weight.shape, generator=generator)
            # the blocks write more than the embedding, or tied heads would repeat the last token
            gain = 2.0 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
            weight.copy_(noise * gain * width**-0.5)
        model.model.norm.weight.mul_(sharpen)
    return model.to(dtype).eval()


def tiny_llama(
    seed: int = 0, *, sharpen: float = 1.0, dtype: torch.dtype = torch.float64, **shape: Any
) -> LlamaForCausalLM:
    """A random Llama; logits have a standard deviation of about `sharpen`; shape: see `_common`."""
    config = LlamaConfig(**_common(**shape))
    return _finish(LlamaForCausalLM(config), seed, sharpen, dtype)


def tiny_qwen2(
    seed: int = 0, *, sharpen: float = 1.0, dtype: torch.dtype = torch.float64, **shape: Any
) -> Qwen2ForCausalLM:
    """A random Qwen2, its qkv biases random too; otherwise as `tiny_llama`."""
    config = Qwen2Config(**_common(**shape))
    return _finish(Qwen2ForCausalLM(config), seed, sharpen, dtype)


def tiny_qwen3(
    seed: int = 0, *, sharpen: float = 1.0, dtype: torch.dtype = torch.float64, **shape: Any
) -> Qwen3ForCausalLM:
    """A random Qwen3, which normalises queries and keys; otherwise as `tiny_llama`."""
    config = Qwen3Config(**_common(**shape), head_dim=HEAD_DIM)
    return _finish(Qwen3ForCausalLM(config), seed, sharpen, dtype)


def tiny_checkpoint(
    path: Path,
    model: PreTrainedModel | None = None,
    *,
    mask: bool = False,
    safe: bool = True,
) -> Path:
    """Save `model` (default: `tiny_llama` in float32) and a `tiny_tokenizer` into folder `path`.

    mask: the tokenizer has `<|mask|>` (id MASK_ID). safe: False writes pickled weights, to be
    refused.
    """
    if model is None:
        model = tiny_llama(dtype=torch.float32)
    model.save_pretrained(path)
    if not safe:
        (path / "model.safetensors").unlink()
        torch.save(model.state_dict(), path / "pytorch_model.bin")
    tiny_tokenizer(mask=mask).save_pretrained(path)
    return path


def edit(path: Path, **changes: object) -> None:
    """Set (or, with None, drop) keys of a JSON file."""
    values = json.loads(path.read_text()) if path.exists() else {}
    values.update(changes)
    path.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))


def save_adapter(path: Path, base, **options: object) -> Path:
    """A LoRA of `base` whose weights are random instead of zero."""
    settings = {"r": 4, "target_modules": ["q_proj", "v_proj", "down_proj"], **options}
    wrapped = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **settings))
    generator = torch.Generator().manual_seed(1)
    for name, weight in wrapped.named_parameters():
        if "lora_" in name:
            weight.data.copy_(0.3 * torch.randn(weight.shape, generator=generator))
    wrapped.save_pretrained(path, save_embedding_layers=False)
    edit(path / "adapter_config.json", base_model_name_or_path="org/base")
    return path
