"""PEFT adapters: found, merged into the base in float32, never half loaded."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from transformers import PreTrainedModel

from mars_core.errors import MarsError
from mars_core.models import catalog, hub
from mars_core.models.progress import Progress
from mars_core.models.words import folder_at, one_line
from mars_core.paths import assets_dir

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter on disk. name: its folder's name or its hub id. base: what it was made for."""

    name: str
    folder: Path
    base: str


def shipped(model: str) -> str | None:
    """The folder of the adapter that comes with a catalogued model; None where none does."""
    entry = catalog.find(model)
    if entry is None or entry.adapter is None:
        return None
    return str(assets_dir() / "adapters" / entry.adapter)


def chosen(model: str, adapter: str | None) -> str | None:
    """The adapter that is meant: for "auto" the one that comes with `model`, if there is one."""
    return shipped(model) if adapter == "auto" else adapter


def find_adapter(wanted: str, progress: Progress) -> Adapter:
    """The adapter in folder `wanted`, else on the hub. MarsError when it cannot be used."""
    path = folder_at(wanted)
    if path is not None:
        name, folder = path.resolve().name, path
    elif hub.is_hub_id(wanted):
        name, folder = wanted, hub.required(wanted, f"adapter {wanted}", progress)
    else:
        raise MarsError(
            f"adapter {one_line(wanted, 80)!r} is neither a folder nor a hub id (org/name)"
        )
    if not (folder / WEIGHTS).is_file():
        pickled = (folder / "adapter_model.bin").is_file()
        found = "only pickled weights, which could run code" if pickled else f"no {WEIGHTS}"
        raise MarsError(f"adapter {name} has {found}: it must be in safetensors")
    return Adapter(name, folder, _base(folder, name))


def _base(folder: Path, name: str) -> str:
    try:
        settings = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        base = settings.get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError) as error:
        raise MarsError(f"adapter {name} has no readable {CONFIG}") from error
    # a path of the machine it was trained on says no more than its last part
    return base if isinstance(base, str) and hub.is_hub_id(base) else Path(str(base or "?")).name


def merge(model: PreTrainedModel, adapter: Adapter, model_name: str) -> PreTrainedModel:
    """`model` (in float32 or float64) with the adapter's changes added to its weights.

    Raises MarsError when any part of the adapter does not fit.
    """
    # imported late: it takes seconds, and most models come without an adapter
    from peft import PeftModel

    try:
        with warnings.catch_warnings():
            # PEFT warns of keys that were not loaded; the comparison below refuses them
            warnings.simplefilter("ignore")
            wrapped = PeftModel.from_pretrained(model, adapter.folder, torch_device="cpu")
            if problem := _difference(wrapped, adapter.folder / WEIGHTS):
                raise ValueError(problem)
            merged: PreTrainedModel = wrapped.merge_and_unload(safe_merge=True)
            return merged
    except Exception as error:
        # PEFT and torch say "does not fit" with many exception types
        raise MarsError(
            f"adapter {adapter.name} does not fit {model_name} (it was made for "
            f"{one_line(adapter.base, 80)}): {one_line(error, 160)}"
        ) from error


def _difference(wrapped: Any, weights: Path) -> str | None:
    """What the file has and the model does not use, or the other way round."""
    from peft import get_peft_model_state_dict

    with safe_open(weights, framework="pt") as file:
        stored = set(file.keys())
    used = set(get_peft_model_state_dict(wrapped, save_embedding_layers=False))
    if unused := sorted(stored - used):
        return f"{len(unused)} of its tensors have no place in the model, such as {unused[0]}"
    if absent := sorted(used - stored):
        return f"{len(absent)} tensors are missing in it, such as {absent[0]}"
    return None
