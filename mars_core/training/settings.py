"""What a training run is told: checked where it is made, readable from YAML. No torch."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mars_core.config import (
    MAX_BLOCK_SIZE,
    MAX_SEED,
    Device,
    DtypeName,
    check_choice,
    check_range,
)
from mars_core.errors import MarsError
from mars_core.models import catalog
from mars_core.models.words import expanded, one_line

Method = Literal["lora", "full"]
Attention = Literal["sdpa", "eager", "flex"]
MaskLabels = Literal["data", "ar"]

CONFIG = "training.yaml"  # in a run's folder
# what `resume` may find changed: none of it touches the steps already made
MAY_CHANGE = frozenset(
    {
        "out",
        "steps",
        "minutes",
        "resume",
        "models_dir",
        "checkpoint_minutes",
        "evaluate_minutes",
        "evaluate_prompts",
        "evaluate_tokens",
        "log_steps",
    }
)


@dataclass(frozen=True, slots=True)
class Source:
    """Where examples come from.

    name: a .jsonl file, gzipped or not, or a Hugging Face data set (`org/name` or
    `org/name:split`). weight: its part of the mix, beside those of the other sources; without
    weights every example counts the same.
    """

    name: str
    weight: float | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise MarsError("a data source has no name")
        if self.weight is not None:
            check_range(f"weight of {one_line(self.name, 60)}", self.weight, 0.001, 1000)

    @classmethod
    def parse(cls, text: str) -> Source:
        """From a flag: NAME or NAME=WEIGHT."""
        name, equals, weight = text.rpartition("=")
        if not equals:
            return cls(text)
        try:
            return cls(name, float(weight))
        except ValueError:
            raise MarsError(f"{one_line(text, 80)}: NAME=WEIGHT wants a number") from None


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """A training run. Terms follow the MARS paper (arXiv 2604.07023).

    data: see `Source`. out: the run's folder.
    model, device, dtype, mask_token, models_dir: as for `mars_core.models.load`; full fine-tuning
        keeps its weights in float32 whatever dtype says.
    method: "lora" (rank, alpha (None: the rank), dropout; all linear layers, and the mask's
        embedding) or "full". adapter: one to go on from, folder or hub id; of the same rank.
    block_sizes: B; with several, each sequence draws its own. random_phase: blocks begin anywhere
        instead of at the sequence's start. copies: noisy streams per clean one.
    ar_weight, mask_weight: of L_AR and L_mask; 0 leaves one out (without masks: plain fine-tuning).
    mask_labels: what masks learn: the tokens of the "data", or those that the clean stream, "ar",
        would choose itself, as far as the data are its choices (see `objective.follow`).
    ar_teacher: share of the original weights' prediction in the target of L_AR, where they would
        choose the label; keeps one-token decoding near the original (see `objective.Teacher`).
    unlikelihood: weight of what looping answers teach: not to say a run of tokens again (0 leaves
        them out). A source of nothing else, such as the `.dropped.jsonl` of `mars distill`, says
        by its weight how often.
    attention: "flex" needs a GPU; "eager", the formula itself, is the fastest on a CPU once it is
        compiled. compile: torch.compile for the layers and the loss, faster after a minute or so;
        needs a C++ compiler.
    max_length: in tokens; longer prompts are left out, longer answers cut. limit: examples taken
        from each source.
    batch_size: sequences per step, over all processes and `accumulate` forwards.
    lr: at the peak (None: 4e-3 for lora, 1e-5 for full); warmup: share of the run; floor: what
        the cosine ends at, as a share. mask_lr_scale: of the mask's embedding (lora).
    minutes, steps: the budget; what ends first ends the run, and the schedule follows it. The
        last evaluation and the writing of the weights come on top.
    validation: share of the prompts held out, up to max_validation examples.
    evaluate_minutes: between evaluations; evaluate_prompts, evaluate_tokens, tau: what is decoded
        there. checkpoint_minutes: between checkpoints. log_steps: between lines of the log.
    held_out: files of evaluation prompts; data that overlaps them is left out (None: all of
        `assets/evaluation`).
    resume: go on from the last checkpoint in `out`.
    """

    data: tuple[Source, ...]
    out: Path
    model: str = catalog.DEFAULT_MODEL
    device: Device = "auto"
    dtype: DtypeName = "auto"
    mask_token: str | None = None
    models_dir: Path | None = None
    method: Method = "lora"
    adapter: str | None = None
    rank: int = 32
    alpha: int | None = None
    dropout: float = 0.0
    block_sizes: tuple[int, ...] = (4,)
    random_phase: bool = True
    copies: int = 1
    ar_weight: float = 1.0
    mask_weight: float = 1.0
    mask_labels: MaskLabels = "data"
    ar_teacher: float = 0.0
    unlikelihood: float = 0.0
    attention: Attention = "sdpa"
    compile: bool = False
    max_length: int = 512
    limit: int | None = None
    batch_size: int = 8
    accumulate: int = 1
    lr: float | None = None
    mask_lr_scale: float = 3.0
    warmup: float = 0.1
    floor: float = 0.05
    weight_decay: float = 0.0
    clip: float = 1.0
    minutes: float | None = None
    steps: int | None = None
    validation: float = 0.02
    max_validation: int = 64
    evaluate_minutes: float = 10.0
    evaluate_prompts: int = 8
    evaluate_tokens: int = 64
    tau: float = 0.95
    checkpoint_minutes: float = 5.0
    log_steps: int = 10
    held_out: tuple[Path, ...] | None = None
    seed: int = 0
    resume: bool = False

    def __post_init__(self) -> None:
        self._check_data()
        check_choice("method", self.method, Method)
        check_choice("attention", self.attention, Attention)
        check_choice("mask labels", self.mask_labels, MaskLabels)
        if not self.block_sizes:
            raise MarsError("block sizes are missing: give one at least")
        for size in self.block_sizes:
            check_range("block size", size, 1, MAX_BLOCK_SIZE, whole=True)
        self._check_numbers()
        if self.steps is None and self.minutes is None:
            raise MarsError("how long to train? give minutes, steps or both")
        if not self.ar_weight and not self.mask_weight:
            raise MarsError("with both weights 0 there is nothing to learn")
        for name, wanted in (
            ("unlikelihood", self.unlikelihood),
            ("mask labels of ar", self.mask_labels == "ar"),
        ):
            if wanted and not self.ar_weight:
                raise MarsError(f"{name} go with L_AR: give it an AR weight above 0")
        if self.adapter is not None and self.method != "lora":
            raise MarsError("an adapter can be gone on from with the method lora only")
        if self.batch_size % self.accumulate:
            raise MarsError(
                f"a batch of {self.batch_size} cannot be split into {self.accumulate} equal parts"
            )

    def _check_data(self) -> None:
        if not self.data:
            raise MarsError("no training data is named")
        if len({source.weight is None for source in self.data}) > 1:
            raise MarsError("give every data source a weight, or none")

    def _check_numbers(self) -> None:
        whole: dict[str, tuple[int | None, int, int]] = {
            "rank": (self.rank, 1, 4096),
            "alpha": (self.alpha, 1, 10**5),
            "copies": (self.copies, 1, 16),
            "max length": (self.max_length, 8, 10**6),
            "limit": (self.limit, 1, 10**9),
            "batch size": (self.batch_size, 1, 10**5),
            "accumulate": (self.accumulate, 1, 10**5),
            "steps": (self.steps, 1, 10**8),
            "max validation": (self.max_validation, 0, 10**5),
            "evaluate prompts": (self.evaluate_prompts, 0, 10**4),
            "evaluate tokens": (self.evaluate_tokens, 1, 10**4),
            "log steps": (self.log_steps, 1, 10**6),
            "seed": (self.seed, 0, MAX_SEED),
        }
        real: dict[str, tuple[float | None, float, float]] = {
            "dropout": (self.dropout, 0, 0.9),
            "AR weight": (self.ar_weight, 0, 1000),
            "mask weight": (self.mask_weight, 0, 1000),
            "AR teacher": (self.ar_teacher, 0, 1),
            "unlikelihood": (self.unlikelihood, 0, 1000),
            "learning rate": (self.lr, 1e-9, 10),
            "learning rate of the mask": (self.mask_lr_scale, 0, 1000),
            "warm-up": (self.warmup, 0, 1),
            "floor": (self.floor, 0, 1),
            "weight decay": (self.weight_decay, 0, 10),
            "clip": (self.clip, 1e-6, 1e6),
            "minutes": (self.minutes, 0.01, 10**6),
            "validation": (self.validation, 0, 0.5),
            "evaluate minutes": (self.evaluate_minutes, 0.01, 10**6),
            "checkpoint minutes": (self.checkpoint_minutes, 0.01, 10**6),
            "tau": (self.tau, 0, 1),
        }
        for name, (value, low, high) in {**whole, **real}.items():
            if value is not None:
                check_range(name, value, low, high, whole=name in whole)

    @property
    def peak_lr(self) -> float:
        """The learning rate at its highest."""
        return self.lr if self.lr is not None else {"lora": 4e-3, "full": 1e-5}[self.method]

    @property
    def block_size(self) -> int:
        """The B that decoding should use: the largest trained."""
        return max(self.block_sizes)

    def check_goes_on(self, before: TrainConfig, *ignoring: str) -> None:
        """Raise MarsError unless this can go on with the run that `before` began.

        ignoring: names of fields that need not be looked at.
        """
        may_change = MAY_CHANGE.union(ignoring)
        names = [f.name for f in dataclasses.fields(self) if f.name not in may_change]
        for name in names:
            if getattr(self, name) != getattr(before, name):
                raise MarsError(
                    f"{self.out} was begun with another {name} "
                    f"({one_line(getattr(before, name), 40)}); a run goes on as it began"
                )


def to_yaml(config: TrainConfig) -> str:
    """The whole configuration; `from_mapping(read_yaml(...))` gives it back."""
    import yaml

    def plain(value: Any) -> Any:
        if isinstance(value, Source):
            plainly = value.weight is None and "=" not in value.name
            return value.name if plainly else dataclasses.asdict(value)
        if isinstance(value, tuple):
            return [plain(item) for item in value]
        return str(value) if isinstance(value, Path) else value

    values = {f.name: plain(getattr(config, f.name)) for f in dataclasses.fields(config)}
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML (or JSON) file; MarsError where there is none."""
    import yaml

    try:
        values = yaml.safe_load(expanded(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise MarsError(f"{path.name or path} cannot be read: {one_line(error, 120)}") from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise MarsError(f"{path.name} must hold settings, one `name: value` a line")
    return values


def from_mapping(values: Mapping[str, Any]) -> TrainConfig:
    """The configuration that plain values describe, names as in `TrainConfig` (or with dashes)."""
    named = {key.replace("-", "_"): value for key, value in values.items()}
    hints = typing.get_type_hints(TrainConfig)
    if unknown := sorted(named.keys() - hints.keys()):
        raise MarsError(f"unknown setting {one_line(unknown[0], 60)!r}; see mars train --help")
    for name in ("data", "out"):
        if not named.get(name):
            raise MarsError(f"the setting {name} is missing")
    return TrainConfig(**{key: _typed(key, value, hints[key]) for key, value in named.items()})


def _typed(name: str, value: Any, hint: Any) -> Any:
    """`value` as the field wants it: YAML has neither tuples nor paths, and reads 2e-3 as text."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None:
        if types.NoneType not in options:
            raise MarsError(f"the setting {name} has no value")
        return None
    kind = options[0]
    if typing.get_origin(kind) is tuple:
        items = value if isinstance(value, (list, tuple)) else [value]
        return tuple(_typed(name, item, typing.get_args(kind)[0]) for item in items)
    if kind is Source:
        return _source(value)
    if kind is float and isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise MarsError(f"{name} is {one_line(value, 40)!r}: it must be a number") from None
    if kind in (str, Path) and not isinstance(value, (str, Path)):
        raise MarsError(f"{name} is {one_line(value, 40)!r}: it must be text")
    if kind is bool and not isinstance(value, bool):
        raise MarsError(f"{name} is {one_line(value, 40)!r}: it must be true or false")
    return expanded(value) if kind is Path else value


def _source(value: Any) -> Source:
    if isinstance(value, Source):
        return value
    named = isinstance(value, dict) and isinstance(value.get("name"), str)
    if named and value.keys() <= {"name", "weight"}:
        return Source(**{"name": "", **value})
    if isinstance(value, str):
        return Source.parse(value)
    raise MarsError(f"a data source is NAME, NAME=WEIGHT or name and weight, not {value!r:.60}")
