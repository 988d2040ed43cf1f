"""GGUF to a folder of bfloat16 safetensors, tokenizer and config."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import gguf
import torch
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GgufConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from mars_core.models.hush import quiet
from mars_core.models.progress import Progress

STEPS = 3
# what llama.cpp calls a way to split text before byte-level BPE: the splitters in front of it
PRE_TOKENIZERS: dict[str, list[Any]] = {
    "gpt-2": [],
    "smollm": [pre_tokenizers.Digits(individual_digits=True)],
}
ROLES = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "pad_token": "padding",
}


def convert_gguf(path: Path, target: Path, progress: Progress) -> None:
    """Write the GGUF at `path` into folder `target`, ready for `from_pretrained`.

    Raises whatever gguf, transformers or the disk raise.
    """
    progress("convert", 0, STEPS)
    # the GGUF loader draws a tqdm bar of its own that no setting turns off
    with quiet(), contextlib.redirect_stderr(io.StringIO()):
        tokenizer = read_tokenizer(path)
        progress("convert", 1, STEPS)
        source: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True}
        # read once and passed on: each reading of the file's header takes seconds
        config = AutoConfig.from_pretrained(path.parent, **source)
        loaded = AutoModelForCausalLM.from_pretrained(
            path.parent,
            config=config,
            dtype=torch.bfloat16,
            quantization_config=GgufConfig(dequantize=True),
            trust_remote_code=False,
            **source,
        )
        progress("convert", 2, STEPS)
        _save_plain(loaded, target)
        tokenizer.model_max_length = config.max_position_embeddings
        tokenizer.save_pretrained(target)
        progress("convert", STEPS, STEPS)


def _save_plain(loaded: PreTrainedModel, target: Path) -> None:
    """Save the weights through a fresh model: one read from GGUF counts as quantised and refuses.

    The tensors are shared, not copied.
    """
    config = type(loaded.config)(**_plain_config(loaded.config.to_dict()))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.generation_config = loaded.generation_config
    model.save_pretrained(target, state_dict=loaded.state_dict())
    # written through a private temporary file; a shared folder has other readers
    (target / "model.safetensors").chmod(0o644)


def _plain_config(values: dict[str, Any]) -> dict[str, Any]:
    """The config without the marks of where it came from."""
    dropped = (
        "quantization_config",
        "_name_or_path",
        "_model_name_or_path",
        "transformers_version",
    )
    return {key: value for key, value in values.items() if key not in dropped}


def read_tokenizer(path: Path) -> PreTrainedTokenizerFast:
    """The byte-level BPE tokenizer in a GGUF.

    Read here because transformers' own conversion differs by version: 5.17 takes the wrong end
    token and tidies decoded text up, and all miss that SmolLM splits digits, which changes the
    ids wherever whitespace stands before a digit, as in numbered lists.
    Raises ValueError for other kinds of tokenizer.
    """
    reader = gguf.GGUFReader(path)

    def value(key: str) -> Any:
        field = reader.get_field(f"tokenizer.{key}")
        return None if field is None else field.contents()

    kind, pre = value("ggml.model"), value("ggml.pre")
    if kind != "gpt2" or pre not in PRE_TOKENIZERS:
        raise ValueError(f"its tokenizer is of an unknown kind ({kind}, {pre})")
    tokens, types = value("ggml.tokens"), value("ggml.token_type")
    merges = [tuple(merge.split(" ", 1)) for merge in value("ggml.merges")]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    backend = Tokenizer(BPE(vocab=vocabulary, merges=merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*PRE_TOKENIZERS[pre], byte_level])
    backend.decoder = decoders.ByteLevel()
    control = [t for t, kind in zip(tokens, types, strict=True) if kind == gguf.TokenType.CONTROL]
    backend.add_special_tokens([AddedToken(token, special=True) for token in control])
    roles = {role: value(f"ggml.{key}_token_id") for role, key in ROLES.items()}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        clean_up_tokenization_spaces=False,
        **{role: tokens[index] for role, index in roles.items() if index is not None},
    )
    tokenizer.chat_template = value("chat_template")
    return tokenizer
