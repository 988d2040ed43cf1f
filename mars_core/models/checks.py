"""Whether a checkpoint is one the decoder can run, said before its weights are read."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from mars_core.errors import MarsError
from mars_core.models.words import one_line

# the authors' released MARS checkpoints: their own name for plain Qwen2 weights
MODEL_TYPE_ALIASES = {"a2d-qwen2": ("qwen2", "Qwen2ForCausalLM")}
CAUSAL_SUFFIXES = ("ForCausalLM", "LMHeadModel")
FORWARD_ARGUMENTS = ("attention_mask", "position_ids", "use_cache", "logits_to_keep")
CACHE_ARGUMENTS = ("cache", "past_key_values")


def read_raw_config(folder: Path, name: str) -> dict[str, Any]:
    """The folder's config.json, aliases resolved and references to remote code dropped.

    Raises MarsError when it is missing or no JSON object.
    """
    if (folder / "adapter_config.json").is_file():
        # transformers would go and look for the base that the adapter names
        raise MarsError(f"{name} is an adapter: name its base as the model, and it as the adapter")
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MarsError(f"{name} has no config.json: it is not a model folder") from None
    except (OSError, ValueError) as error:
        raise MarsError(f"config.json of {name} cannot be read: {one_line(error)}") from error
    if not isinstance(raw, dict):
        raise MarsError(f"config.json of {name} is not a JSON object")
    raw.pop("auto_map", None)
    if raw.get("model_type") in MODEL_TYPE_ALIASES:
        raw["model_type"], architecture = MODEL_TYPE_ALIASES[raw["model_type"]]
        raw["architectures"] = [architecture]
    return raw


def check_files(folder: Path, name: str) -> None:
    """Raise MarsError unless the folder has safetensors weights."""
    if any(folder.glob("*.safetensors")):
        return
    pickled = any(folder.glob("*.bin")) or any(folder.glob("*.pt*"))
    found = "only pickled weights, which could run code" if pickled else "no weights"
    raise MarsError(f"{name} has {found}: it must have .safetensors files")


def parse_config(raw: dict[str, Any], name: str) -> PreTrainedConfig:
    """The config object of a causal language model; MarsError for anything else."""
    architectures = raw.get("architectures") or ["no architecture"]
    kind = str(raw.get("model_type"))
    causal = any(str(architecture).endswith(CAUSAL_SUFFIXES) for architecture in architectures)
    if not causal or raw.get("is_encoder_decoder"):
        raise MarsError(
            f"{name} is not a causal language model (its config names "
            f"{one_line(', '.join(map(str, architectures)))})"
        )
    if kind not in CONFIG_MAPPING or CONFIG_MAPPING[kind] not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise MarsError(
            f"{name} is of a kind that transformers does not know ({one_line(kind)}), and code "
            f"that comes with a model is never run"
        )
    try:
        return CONFIG_MAPPING[kind].from_dict(dict(raw))
    except Exception as error:
        # strict config classes raise their own kinds of errors for wrong types
        raise MarsError(f"config.json of {name} is not valid: {one_line(error)}") from error


def model_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The class that AutoModelForCausalLM would take."""
    found: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    return found[0] if isinstance(found, (list, tuple)) else found


def check_supported(config: PreTrainedConfig, name: str) -> None:
    """Raise MarsError unless every layer is full attention and the forward takes what we pass.

    The decoder passes an explicit 4-D mask, position ids and its own cache of keys and values.
    """
    if problem := _problem(config):
        raise MarsError(f"{name} is not supported: {problem}")


def _problem(config: PreTrainedConfig) -> str | None:
    cls = model_class(config)
    arguments = inspect.signature(cls.forward).parameters
    missing = [argument for argument in FORWARD_ARGUMENTS if argument not in arguments]
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if kinds:
        return f"it has layers that are not full attention ({', '.join(sorted(kinds))})"
    if getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None):
        return f"it has a sliding attention window of {config.sliding_window} tokens"
    if getattr(config, "quantization_config", None) is not None:
        return "its weights are stored quantised"
    if getattr(config, "alibi", False):
        return "it has no position ids (ALiBi)"
    if getattr(cls, "_is_stateful", False) or not any(a in arguments for a in CACHE_ARGUMENTS):
        return "it has no cache of keys and values"
    if missing:
        return f"its forward does not take {', '.join(missing)}"
    return None
