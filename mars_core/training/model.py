"""The model in training: what one forward of the dual-stream batch computes, and its weights.

The wrapped model is trained in place. With LoRA only an adapter on all linear layers and the
mask's embedding are; they are kept in float32 over a base that may be bfloat16.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask
from transformers import PreTrainedModel

from mars_core.errors import MarsError
from mars_core.models import fetch
from mars_core.models.adapter import WEIGHTS, find_adapter
from mars_core.models.hardware import dtype_name
from mars_core.models.load import LoadedModel
from mars_core.models.progress import silent
from mars_core.training.checkpoint import damaged, write_json
from mars_core.training.objective import (
    CLEAN,
    NEXT,
    REPEAT,
    UNWANTED,
    Ids,
    RowLosses,
    Teacher,
    additive_mask,
    block_mask,
    dense_mask,
    follow,
    row_losses,
    slot_counts,
)
from mars_core.training.settings import Method, TrainConfig

IMPLEMENTATIONS = {"flex": "flex_attention", "eager": "eager"}  # in transformers' words
EXPORT_DTYPE = torch.bfloat16  # as models are commonly stored


class DualStream(nn.Module):
    """A causal language model whose forward takes an `objective.Batch` and gives its losses.

    declared: see `declaration`. teacher: the model as it was before training, for `ar_teacher`.
    autocast: compute in bfloat16 where torch thinks it safe.
    """

    def __init__(
        self,
        model: nn.Module,
        ids: Ids,
        config: TrainConfig,
        *,
        declared: Mapping[str, Any],
        teacher: PreTrainedModel | None = None,
        autocast: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.teacher = teacher
        self.declared = declared
        self.mask_id = ids.mask
        self.settings = config
        self.autocast = autocast

    @property
    def causal(self) -> PreTrainedModel:
        """The language model itself, adapters inside."""
        model: Any = self.model
        return cast(PreTrainedModel, getattr(model, "get_base_model", lambda: model)())

    @property
    def device(self) -> torch.device:
        return self.causal.device

    def head(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Weight (vocabulary, d) and bias of the output layer."""
        return _head(self.causal)

    def hidden(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, attention_mask: Any
    ) -> torch.Tensor:
        """What the head is given, (N, T, d)."""
        backbone = self.causal.base_model
        return cast(
            torch.Tensor,
            backbone(
                input_ids=input_ids,
                position_ids=position_ids,
                attention_mask=attention_mask,
                use_cache=False,
            ).last_hidden_state,
        )

    def mask(
        self, stream: torch.Tensor, position_ids: torch.Tensor, begin: torch.Tensor
    ) -> torch.Tensor | BlockMask:
        """Who sees whom, as the attention in use wants it."""
        if self.settings.attention == "flex":
            return block_mask(stream, position_ids, begin)
        if self.settings.attention == "eager":
            return additive_mask(stream, position_ids, begin, self.causal.dtype)
        return dense_mask(stream, position_ids, begin)

    @torch.no_grad()
    def lesson(
        self,
        input_ids: torch.Tensor,
        stream: torch.Tensor,
        rows: torch.Tensor,
        slots: torch.Tensor,
    ) -> Teacher | None:
        """What the teacher makes of the clean rows; arguments as in `objective.Batch`."""
        if self.teacher is None:
            return None
        # each sequence begins with its clean stream, which sees nothing of what comes behind it
        width = int((stream == CLEAN).sum(1).max())
        backbone = self.teacher.base_model.eval()
        hidden = backbone(input_ids=input_ids[:, :width], use_cache=False).last_hidden_state
        clean = (slots == NEXT).nonzero()[:, 0]
        number, column = rows[clean] // stream.shape[1], rows[clean] % stream.shape[1]
        return Teacher(
            hidden[number, column], *_head(self.teacher), clean, self.settings.ar_teacher
        )

    def forward(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        stream: torch.Tensor,
        begin: torch.Tensor,
        rows: torch.Tensor,
        labels: torch.Tensor,
        slots: torch.Tensor,
        share: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        """The losses of a batch; arguments as in `objective.Batch`.

        Returns loss (with gradient), ar and mask (its two parts, unweighted), counts (as
        `slot_counts`), and right and slots (R,) for whoever looks at single rows: first those of
        the clean stream.
        """
        settings = self.settings
        heard = (slots == NEXT) | (slots == UNWANTED)
        order = torch.cat([heard.nonzero()[:, 0], (~heard).nonzero()[:, 0]])
        rows, labels, slots, share = (x[order] for x in (rows, labels, slots, share))
        clean, noisy = slice(int(heard.sum())), slice(int(heard.sum()), None)
        unwanted = slots[clean] == UNWANTED
        weights = share.clone()
        weights[clean] *= torch.where(unwanted, settings.unlikelihood, settings.ar_weight)
        weights[noisy] *= settings.mask_weight
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            hidden = self.hidden(input_ids, position_ids, self.mask(stream, position_ids, begin))
            hidden = hidden.flatten(0, 1)[rows]
            said = self.losses(
                hidden[clean],
                labels[clean],
                weights[clean],
                unwanted=unwanted if unwanted.any() else None,
                teacher=self.lesson(input_ids, stream, rows[clean], slots[clean]),
            )
            if settings.mask_labels == "ar":
                labels[noisy], followed = follow(
                    position_ids,
                    rows[clean],
                    labels[clean],
                    said.choices,
                    rows[noisy],
                    slots[noisy],
                )
                weights[noisy] *= followed
                share[noisy] *= followed
                slots[noisy] = torch.where(followed, slots[noisy], REPEAT)
            masked = self.losses(hidden[noisy], labels[noisy], weights[noisy])
        nll = torch.cat([said.nll, masked.nll])
        right = torch.cat([said.choices, masked.choices]) == labels
        parts = nll * share
        return {
            "loss": said.loss + masked.loss,
            "ar": parts[clean][~unwanted].sum(),
            "mask": parts[noisy].sum(),
            "counts": slot_counts(
                slots, nll, torch.cat([said.top, masked.top]), right, settings.block_size
            ),
            "right": right,
            "slots": slots,
        }

    def losses(
        self,
        hidden: torch.Tensor,
        labels: torch.Tensor,
        weights: torch.Tensor,
        *,
        unwanted: torch.Tensor | None = None,
        teacher: Teacher | None = None,
    ) -> RowLosses:
        """`row_losses` with this model's head."""
        return row_losses(
            hidden,
            *self.head(),
            labels,
            weights,
            self.mask_id,
            unwanted=unwanted,
            teacher=teacher,
            compiled=self.settings.compile,
        )


def _head(causal: PreTrainedModel) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weight and bias of a model's output layer.

    PEFT wraps a head that is tied to the embedding only to change the mask's row, which no loss
    looks at.
    """
    layer: Any = causal.get_output_embeddings()
    layer = getattr(layer, "token_adapter", layer)
    layer = getattr(layer, "base_layer", layer)
    return layer.weight, getattr(layer, "bias", None)


def prepare(
    loaded: LoadedModel, config: TrainConfig, ids: Ids, *, autocast: bool = False
) -> DualStream:
    """The loaded model made trainable as `config` says. Raises MarsError where that cannot be."""
    model: Any = loaded.model
    if model.config._attn_implementation != "sdpa":
        raise MarsError(f"{loaded.name} cannot be trained: its attention takes no plain mask")
    teacher = as_it_is(model, config.method) if config.ar_teacher else None
    if config.attention != "sdpa":
        model.set_attn_implementation(IMPLEMENTATIONS[config.attention])
    if config.method == "full":
        model.requires_grad_(True)
    else:
        model = add_adapter(model, config, ids.mask, loaded.name)
        if config.adapter is not None:
            found = find_adapter(config.adapter, silent)
            if not put_adapter(model, _tensors(found.folder / WEIGHTS)):
                raise MarsError(
                    f"adapter {found.name} cannot be gone on from: another rank, other layers or "
                    "another base"
                )
    declared = declaration(config, ids.mask)
    dual = DualStream(model, ids, config, declared=declared, teacher=teacher, autocast=autocast)
    check_head(dual)
    if autocast:
        for layer in model.modules():
            if hasattr(layer, "cast_input_dtype_enabled"):
                # PEFT would turn every input into float32, and autocast that back into bfloat16
                layer.cast_input_dtype_enabled = False
    if config.compile:
        for trained in filter(None, (dual.causal, teacher)):
            for layer in decoder_layers(trained):
                layer.compile(dynamic=True)
    return dual


def as_it_is(model: PreTrainedModel, method: Method) -> PreTrainedModel:
    """The model before it is trained, to learn from.

    An adapter leaves the weights alone: then this is a second model around the same tensors.
    """
    shared = {id(p): p for p in model.parameters()} if method == "lora" else {}
    return copy.deepcopy(model, shared).requires_grad_(False)


def decoder_layers(model: PreTrainedModel) -> nn.ModuleList:
    """The model's layers, which are all alike: compiled once, used by each."""
    backbone: Any = model.base_model
    return cast(nn.ModuleList, backbone.layers)


def add_adapter(model: PreTrainedModel, config: TrainConfig, mask_id: int, base: str) -> Any:
    """A PEFT model with LoRA on all linear layers but the head, and the mask's embedding."""
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(
        task_type="CAUSAL_LM",
        r=config.rank,
        lora_alpha=config.alpha or config.rank,
        lora_dropout=config.dropout,
        target_modules="all-linear",
        trainable_token_indices=[mask_id],
    )
    wrapped = get_peft_model(model, settings)
    # a name, where PEFT would write a path of this machine
    wrapped.peft_config["default"].base_model_name_or_path = base
    return wrapped


@torch.no_grad()
def check_head(dual: DualStream) -> None:
    """Raise MarsError where logits are more than the head's product, which the loss relies on."""
    ids = torch.tensor([[0, 1]], device=dual.device)
    places = torch.tensor([[0, 1]], device=dual.device)
    seen = torch.ones(1, 1, 2, 2, dtype=torch.bool, device=dual.device).tril()
    with sdpa(dual):
        causal: Any = dual.causal
        own = causal(
            input_ids=ids, position_ids=places, attention_mask=seen, use_cache=False
        ).logits
        ours = functional.linear(dual.hidden(ids, places, seen), *dual.head())
    for logits in (own, ours):
        logits[..., dual.mask_id] = 0  # see `head`
    if not torch.allclose(own, ours, rtol=1e-2, atol=1e-2 * float(own.abs().max())):
        raise MarsError("this model rescales its logits, which training does not support")


class sdpa:  # noqa: N801
    """Within it the model takes plain masks, whatever attention it is trained with."""

    def __init__(self, dual: DualStream) -> None:
        self._model = dual.causal
        self._before = self._model.config._attn_implementation

    def __enter__(self) -> None:
        if self._before != "sdpa":
            self._model.set_attn_implementation("sdpa")

    def __exit__(self, *error: object) -> None:
        if self._before != "sdpa":
            self._model.set_attn_implementation(self._before)


def groups(dual: DualStream) -> list[dict[str, Any]]:
    """The optimiser's groups: matrices alone decay, the mask's embedding learns faster."""
    config = dual.settings
    found: dict[str, dict[str, Any]] = {
        "matrices": {"lr": config.peak_lr, "weight_decay": config.weight_decay},
        "vectors": {"lr": config.peak_lr, "weight_decay": 0.0},
        "mask": {"lr": config.peak_lr * config.mask_lr_scale, "weight_decay": 0.0},
    }
    for name, parameter in dual.named_parameters():
        if parameter.requires_grad:
            kind = "matrices" if parameter.ndim > 1 else "vectors"
            kind = "mask" if "trainable_tokens_delta" in name else kind
            found[kind].setdefault("params", []).append(parameter)
    return [group for group in found.values() if "params" in group]


def save_weights(
    dual: DualStream, loaded: LoadedModel, folder: Path, *, export: bool = False
) -> None:
    """Write the adapter, or all weights, into `folder`, ready for `mars_core.models.load`.

    export: rounded to bfloat16; without, weights are exact, to go on from.
    """
    model: Any = dual.model
    declared = dict(dual.declared)
    if dual.settings.method == "lora":
        model.save_pretrained(folder, save_embedding_layers=False)
        # PEFT's card is a form that nobody filled in
        (folder / "README.md").unlink(missing_ok=True)
        if export:
            path = folder / WEIGHTS
            rounded = {name: value.to(EXPORT_DTYPE) for name, value in _tensors(path).items()}
            save_file(rounded, path, metadata={"format": "pt"})
        record: dict[str, Any] = declared
    else:
        state = model.state_dict()
        if export:
            state = {name: value.to(EXPORT_DTYPE) for name, value in state.items()}
        model.save_pretrained(folder, state_dict=state)
        loaded.tokenizer.save_pretrained(folder)
        changes: dict[str, Any] = {}
        if declared:
            changes = {"mask_token_id": dual.mask_id, "mars_block_size": declared["block_size"]}
        if export:
            changes["dtype"] = dtype_name(EXPORT_DTYPE)
        path = folder / "config.json"
        write_json(path, {**json.loads(path.read_text(encoding="utf-8")), **changes})
        record = {**declared, "licence": loaded.licence}
    write_json(folder / fetch.RECORD, record)


def declaration(config: TrainConfig, mask_id: int) -> dict[str, Any]:
    """What weights say of their masks: those of this run or, where it has none, of the adapter
    that it goes on from. Plain fine-tuning of a plain model says nothing.
    """
    if config.mask_weight > 0:
        return {"mask_token_id": mask_id, "block_size": config.block_size}
    if config.adapter is None:
        return {}
    record = fetch.read_record(find_adapter(config.adapter, silent).folder)
    return {name: record[name] for name in ("mask_token_id", "block_size") if name in record}


def load_weights(dual: DualStream, folder: Path) -> None:
    """Put back what `save_weights` wrote, exactly."""
    if dual.settings.method == "lora":
        if not put_adapter(dual.model, _tensors(folder / WEIGHTS)):
            raise MarsError(f"{folder.name} is not a checkpoint of this run's adapter")
        return
    stored = {k: v for path in folder.glob("*.safetensors") for k, v in _tensors(path).items()}
    report = dual.causal.load_state_dict(stored, strict=False)
    tied = set(dual.causal.state_dict()) - {n for n, _ in dual.causal.named_parameters()}
    if report.unexpected_keys or set(report.missing_keys) - tied:
        raise MarsError(f"{folder.name} is not a checkpoint of this run's model")


def put_adapter(model: Any, stored: dict[str, torch.Tensor]) -> bool:
    """Give a PEFT model an adapter's tensors; False, and nothing done, where they do not fit."""
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    wanted = get_peft_model_state_dict(model, save_embedding_layers=False)
    fits = {k: v.shape for k, v in stored.items()} == {k: v.shape for k, v in wanted.items()}
    if fits:
        set_peft_model_state_dict(model, stored)
    return fits


def _tensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        return load_file(path)
    except Exception as error:
        # safetensors has its own error for a damaged file
        raise damaged(path.parent) from error
