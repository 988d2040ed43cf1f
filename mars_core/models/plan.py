"""Whether a model fits: weights, cache and workspace by number format, before it is fetched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig

from mars_core.config import DtypeName, Quantization
from mars_core.models import catalog, checks, fetch, hub
from mars_core.models.hardware import DTYPES
from mars_core.models.names import check_known
from mars_core.models.progress import Progress, silent
from mars_core.models.sizes import Sizes
from mars_core.models.words import folder_at

# of the free memory, what a model may take: other programs need some too
SHARE_OF_FREE = 0.9
# of a card, what CUDA itself and a desktop take; an assumption, on the safe side
CARD_RESERVE = 800_000_000
GIBIBYTE = 2**30


@dataclass(frozen=True, slots=True)
class Format:
    """In which numbers a model computes, and how the weights of its linear layers are kept.

    packed: see `mars_core.packing`.
    """

    dtype: str
    quantization: Quantization = "none"
    packed: bool = False

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    @property
    def name(self) -> str:
        """As a table has it, such as "nf4, bfloat16"."""
        return self.dtype if self.quantization == "none" else f"{self.quantization}, {self.dtype}"


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes that decoding takes: of a model in a format, for so many tokens of each of `rows`."""

    weights: int
    cache: int
    workspace: int

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.workspace


def formats(
    quantised_in: str = "bfloat16", packed: Callable[[DtypeName], bool] = lambda dtype: False
) -> tuple[Format, ...]:
    """Those that a plan compares, the largest first. packed: whether weights are, by dtype."""
    return (
        Format("float32", packed=packed("float32")),
        Format("bfloat16", packed=packed("bfloat16")),
        Format(quantised_in, "int8"),
        Format(quantised_in, "nf4"),
    )


def needs(sizes: Sizes, form: Format, tokens: int, rows: int = 1, *, on_cpu: bool = True) -> Needs:
    """What decoding in this format takes."""
    dtype, kind = form.torch_dtype, form.quantization
    return Needs(
        sizes.weights(dtype, kind, packed=form.packed),
        rows * sizes.cache(tokens, dtype),
        sizes.workspace(tokens, dtype, kind, rows, on_cpu=on_cpu),
    )


def longest(sizes: Sizes, form: Format, budget: int, rows: int = 1, *, on_cpu: bool = True) -> int:
    """The most tokens for which everything fits into `budget` bytes; 0: not even the weights."""
    low, high = 0, sizes.context
    while low < high:
        middle = (low + high + 1) // 2
        if needs(sizes, form, middle, rows, on_cpu=on_cpu).total <= budget:
            low = middle
        else:
            high = middle - 1
    return low


def card_budget(gigabytes: float) -> int:
    """What a card sold with so many gigabytes leaves for a model."""
    return int(gigabytes * GIBIBYTE) - CARD_RESERVE


def config_of(
    name: str, models_dir: Path | None = None, progress: Progress = silent
) -> PreTrainedConfig:
    """The config of a catalogue name, folder or hub id, without its weights. Raises MarsError."""
    check_known(name)
    path = folder_at(name)
    if entry := catalog.find(name):
        folder = fetch.models_dir(models_dir) / name
        raw = catalogued(entry)
        if (folder / "config.json").is_file():
            raw = checks.read_raw_config(folder, name)
    elif path is not None:
        raw = checks.read_raw_config(path, path.resolve().name)
    else:
        raw = checks.read_raw_config(hub.required(name, name, progress, ("config.json",)), name)
    config = checks.parse_config(raw, name)
    checks.check_supported(config, name)
    return config


def catalogued(entry: catalog.ModelEntry) -> dict[str, Any]:
    """A config.json as far as the catalogue knows it."""
    kinds = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}
    return {**entry.shape, "architectures": [kinds[entry.shape["model_type"]]], "dtype": "bfloat16"}


def size_text(amount: int) -> str:
    """Bytes as a person reads them: 64 kB, 538 MB, 15.2 GB."""
    if amount < 1e6:
        return f"{amount / 1e3:.0f} kB"
    return f"{amount / 1e6:.0f} MB" if amount < 999.5e6 else f"{amount / 1e9:.1f} GB"
