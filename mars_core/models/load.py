"""A model ready for the decoder: found, checked, loaded, its adapter merged."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from mars_core.cache import FIRST_CAPACITY, Fed, Session, entry_bytes
from mars_core.compiled import GRAPH_RUNS, WIDTHS, rounded
from mars_core.config import Device, DtypeName, LoadConfig, Quantization, SpecialTokens
from mars_core.errors import MarsError
from mars_core.models import adapter as adapters
from mars_core.models import catalog, checks, fetch, hub, special
from mars_core.models.hardware import choose_arithmetic, choose_device, dtype_name
from mars_core.models.hush import quiet
from mars_core.models.memory import give_back, tidily, weight_bytes
from mars_core.models.names import check_known
from mars_core.models.progress import Progress, silent
from mars_core.models.quantization import in_words, possible, settings, settle
from mars_core.models.sizes import Sizes
from mars_core.models.weights import quantised, read_weights, stored_weights
from mars_core.models.words import compiling, folder_at, one_line
from mars_core.packing import pack_int8, pack_linears
from mars_core.trunk import can_be_lean


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A causal language model in eval mode on its device, and what a header says of it.

    name: as asked for (of a folder its name, never a path). source: where the weights came from.
    weights: what they are, in words. adapter: its folder's name or hub id.
    mask_token: the [MASK] token as text. trained: an adapter or checkpoint declares MARS training;
    block_size: the B of that training, if declared. context_length: positions, in tokens.
    dtype_reason: why this number format. packed: linear layers are `packing.PackedLinear`.
    compiled: its sessions compile their forwards.
    quantization: of the linear layers' weights; quantization_note: why it is not what was asked
    for, or None. parameters: how many numbers, tied ones once; weight_bytes: what they take.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    name: str
    source: str
    weights: str
    adapter: str | None
    special: SpecialTokens
    mask_token: str | None
    trained: bool
    block_size: int | None
    context_length: int
    dtype: torch.dtype
    dtype_reason: str
    packed: bool
    compiled: bool
    quantization: Quantization
    quantization_note: str | None
    device: torch.device
    parameters: int
    weight_bytes: int
    licence: str | None

    def session(self, rows: int = 1, tokens: int = FIRST_CAPACITY) -> Session:
        """A new one, with places for `rows` sequences of so many tokens to begin with."""
        capacity = self.capacity(tokens)
        return Session(self.model, self.context_length, rows, capacity, compiled=self.compiled)

    def capacity(self, tokens: int) -> int:
        """Entries that a place is given which has to hold so many."""
        return rounded(tokens) if self.compiled else tokens

    @property
    def first_runs(self) -> int:
        """How often a forward has to run before it takes as long as it always will."""
        return GRAPH_RUNS if self.compiled else 1

    @property
    def entry_bytes(self) -> int:
        """Bytes that the keys and values of one token take."""
        return entry_bytes(self.model)

    @property
    def dtype_name(self) -> str:
        """The number format as a person writes it, e.g. "float32"."""
        return dtype_name(self.dtype)


def load_as(config: LoadConfig, progress: Progress = silent) -> LoadedModel:
    """`load` with the settings of `config`."""
    settings = {field.name: getattr(config, field.name) for field in fields(config)}
    return load(settings.pop("model"), progress=progress, **settings)


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint's folder and what is known of it before it is read."""

    folder: Path
    name: str
    source: str
    record: dict[str, Any]


def load(
    name: str,
    *,
    adapter: str | None = "auto",
    device: Device = "auto",
    dtype: DtypeName = "auto",
    quantize: Quantization = "none",
    mask_token: str | None = None,
    models_dir: Path | None = None,
    packing: bool = True,
    compiled: bool = False,
    progress: Progress = silent,
) -> LoadedModel:
    """Load a catalogue name, a local folder or a hub id (`org/name`).

    adapter: folder or hub id of a PEFT adapter, merged in float32; auto: the one that is shipped
    for a catalogued model, if there is one; None: the model's own weights.
    quantize: the linear layers' weights in 8 or 4 bits, an adapter merged before; where that cannot
    be done here they stay in `dtype`, and `quantization_note` says why.
    mask_token: a token, or its id in decimal, to serve as [MASK] instead of the declared one.
    models_dir: where fetched models live, see `fetch.models_dir`.
    packing: linear layers may be packed where that is faster; False for weights that are to be
    trained, saved or compared with plain ones.
    compiled: forwards are compiled for fixed shapes (`mars_core.compiled`); weights stay plain.
    Remote code is never run and pickled weights are never read. Raises MarsError.
    """
    where = choose_device(device)
    how = choose_arithmetic(dtype, where, allow_packing=packing and not compiled)
    kind, note = possible(quantize, where, how.dtype)
    found = resolve(name, models_dir, progress)
    wanted = adapters.chosen(name, adapter)
    used = None if wanted is None else adapters.find_adapter(wanted, progress)
    raw = checks.read_raw_config(found.folder, found.name)
    config = checks.parse_config(raw, found.name)
    checks.check_supported(config, found.name)
    checks.check_files(found.folder, found.name)
    progress("load", 0, None)
    with quiet(), tidily():
        tokenizer = load_tokenizer(found, config)
        declared = special.declaration(
            tokenizer, raw, found.record, fetch.read_record(used.folder) if used else {}
        )
        mask_id = special.chosen_mask(mask_token, tokenizer, declared)
        model = _model(found, config, used, how.dtype, kind, where)
    eos = special.eos_ids(model, tokenizer)
    special.check_mask(mask_id, embedding_rows(model), eos)
    model.eval().requires_grad_(False)
    if compiled and not can_be_lean(model):
        raise MarsError(
            f"{found.name} cannot be compiled, only Llama-, Qwen2- and Qwen3-shaped models can: "
            "leave out --compiled"
        )
    if kind == "nf4":
        settle(model, how.dtype)
    plain = how.packed and kind == "none"
    if plain:
        pack_linears(model)
    in_bfloat16 = where.type == "cpu" and how.dtype is torch.bfloat16
    packed = plain or (
        kind == "int8" and in_bfloat16 and packing and not compiled and pack_int8(model)
    )
    give_back()
    loaded = LoadedModel(
        model=model,
        tokenizer=tokenizer,
        name=found.name,
        source=found.source,
        weights=(found.record.get("weights") or stored_weights(raw)) + in_words(kind),
        adapter=used.name if used else None,
        special=SpecialTokens(mask_id, eos),
        mask_token=special.token_text(tokenizer, mask_id),
        trained=declared.trained,
        block_size=declared.block_size,
        context_length=config.max_position_embeddings,
        dtype=how.dtype,
        dtype_reason=how.reason,
        packed=packed,
        compiled=compiled,
        quantization=kind,
        quantization_note=note,
        device=where,
        parameters=Sizes.of(config).parameters,
        weight_bytes=weight_bytes(model),
        licence=found.record.get("licence"),
    )
    if compiled:
        compile_forwards(loaded, progress)
    return loaded


def compile_forwards(loaded: LoadedModel, progress: Progress) -> None:
    """Run every shape of one sequence, so that none is compiled while somebody waits for text."""
    session = loaded.session()
    session.prefill([[0]])
    with compiling(f"the forwards of {loaded.name}", "leave out --compiled"):
        for done, width in enumerate(WIDTHS):
            progress("compile", done, len(WIDTHS))
            session.forward([Fed([0] * width, range(1, 1 + width))])


def resolve(name: str, models_dir: Path | None, progress: Progress) -> Found:
    """Find the checkpoint called `name`, fetching it into `models_dir` if it is catalogued."""
    check_known(name)
    if entry := catalog.find(name):
        folder = fetch.fetch(entry, fetch.models_dir(models_dir), progress)
        # what the catalogue says of the mask may change without another fetch
        record = {
            "source": f"hub {entry.hub_id}",
            "weights": entry.hub_weights,
            "licence": entry.licence,
            **fetch.read_record(folder),
            "mask_token_id": entry.mask_id,
            "trained": entry.block_size is not None,
            "block_size": entry.block_size,
        }
        return Found(folder, name, str(record["source"]), record)
    path = folder_at(name)
    if path is not None:
        label = path.resolve().name
        return Found(path, label, f"folder {label}", fetch.read_record(path))
    return Found(hub.required(name, name, progress), name, f"hub {name}", {})


def embedding_rows(model: PreTrainedModel) -> int:
    """How many token ids the model can be fed: often more than its tokenizer has."""
    embedding = model.get_input_embeddings()
    assert isinstance(embedding, torch.nn.Embedding)
    return embedding.num_embeddings


def load_tokenizer(found: Found, config: PreTrainedConfig) -> PreTrainedTokenizerFast:
    """The checkpoint's fast tokenizer; MarsError if it has none."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            found.folder,
            config=config,
            use_fast=True,
            trust_remote_code=False,
            local_files_only=True,
        )
    except Exception as error:
        # tokenizers raises bare Exception for files it cannot parse
        raise MarsError(f"{found.name} has no usable tokenizer: {one_line(error)}") from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise MarsError(f"{found.name} has no fast tokenizer (tokenizer.json)")
    return tokenizer


def _model(
    found: Found,
    config: PreTrainedConfig,
    adapter: adapters.Adapter | None,
    dtype: torch.dtype,
    kind: Quantization,
    device: torch.device,
) -> PreTrainedModel:
    """The weights on `device` in `dtype`, an adapter merged in float32 at least."""
    wanted = settings(kind, dtype)
    precise = adapter is not None and dtype is not torch.float64
    early = wanted if adapter is None else None
    read_as = torch.float32 if precise else dtype
    model = read_weights(found.folder, found.name, config, read_as, early, device)
    if adapter is not None:
        model = adapters.merge(model, adapter, found.name)
        if wanted is not None:
            return quantised(model, found.name, config, dtype, wanted, device)
    if wanted is None:
        # through nn.Module, whose types the overloads of PreTrainedModel.to hide
        torch.nn.Module.to(model, device=device, dtype=dtype)
    return model
