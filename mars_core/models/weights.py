"""A checkpoint's weights as a model: read, completely or not at all, and quantised if asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers import BitsAndBytesConfig, PreTrainedConfig, PreTrainedModel

from mars_core.errors import MarsError
from mars_core.models import checks
from mars_core.models.words import one_line


def read_weights(
    folder: Path,
    name: str,
    config: PreTrainedConfig,
    dtype: torch.dtype,
    quantization: BitsAndBytesConfig | None = None,
    device: torch.device | None = None,
) -> PreTrainedModel:
    """The model in `folder`, on the CPU in `dtype`; what is quantised, on `device`.

    Raises MarsError where a tensor is missing or does not fit.
    """
    stored = {"pretrained_model_name_or_path": folder, "use_safetensors": True}
    return _made(stored, name, config, dtype, quantization, device)


def quantised(
    model: PreTrainedModel,
    name: str,
    config: PreTrainedConfig,
    dtype: torch.dtype,
    quantization: BitsAndBytesConfig,
    device: torch.device,
) -> PreTrainedModel:
    """The same model, on the CPU so far, with its linear layers quantised on `device`."""
    held = {"pretrained_model_name_or_path": None, "state_dict": model.state_dict()}
    made = _made(held, name, config, dtype, quantization, device)
    made.generation_config = model.generation_config
    return made


def _made(
    source: dict[str, Any],
    name: str,
    config: PreTrainedConfig,
    dtype: torch.dtype,
    quantization: BitsAndBytesConfig | None,
    device: torch.device | None,
) -> PreTrainedModel:
    # with `output_loading_info` it returns a pair, which its annotation does not say
    cls: Any = checks.model_class(config)
    placed = {"quantization_config": quantization, "device_map": {"": device}}
    try:
        model, report = cls.from_pretrained(
            **source,
            config=config,
            dtype=dtype,
            trust_remote_code=False,
            local_files_only=True,
            attn_implementation="sdpa" if getattr(cls, "_supports_sdpa", False) else "eager",
            output_loading_info=True,
            **(placed if quantization else {}),
        )
    except Exception as error:
        # safetensors, torch and transformers each have their own errors for damaged files
        raise MarsError(f"{name} cannot be loaded: {one_line(error)}") from error
    wrong = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
    if wrong:
        raise MarsError(
            f"{name} is incomplete: {len(wrong)} tensors are missing or of another shape, "
            f"such as {one_line(wrong[0], 80)}"
        )
    if quantization and device is not None and device.type == "cpu":
        _let_go_of_file(model)
    return cast(PreTrainedModel, model)


def _let_go_of_file(model: nn.Module) -> None:
    """Copy what is not quantised: it may be a part of the file, all of which then stays mapped."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.clone()


def stored_weights(config: dict[str, Any]) -> str:
    """The stored weights in words, such as "bfloat16 weights"."""
    return f"{config.get('dtype') or config.get('torch_dtype') or 'float32'} weights"
