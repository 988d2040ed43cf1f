"""Settings of a run, validated where they are made. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from mars_core.errors import MarsError

Mode = Literal["one", "tau", "verified"]
Layout = Literal["grouped", "linear"]
Metric = Literal["probability", "margin", "entropy"]
Strategy = Literal["none", "block", "cursor"]
Device = Literal["auto", "cpu", "cuda", "mps"]
DtypeName = Literal["auto", "float32", "bfloat16", "float16", "float64"]
Quantization = Literal["none", "int8", "nf4"]

MAX_BLOCK_SIZE = 64
MAX_DRAFTS = 16
MAX_CACHE_BLOCK = 1024
MAX_SEED = 2**53 - 1  # what every reader of JSON can hold exactly
MAX_ALTERNATIVES = 20


def check_choice(name: str, value: object, kind: object) -> None:
    """Raise unless `value` is one of the literals of `kind`."""
    allowed = get_args(kind)
    if value not in allowed:
        raise MarsError(f"{name} is {value!r}: choose one of {', '.join(map(str, allowed))}")


def check_range(name: str, value: object, low: float, high: float, *, whole: bool = False) -> None:
    """Raise unless `value` is a number in [low, high] (NaN is in no range)."""
    wanted = int if whole else (int, float)
    kind = "a whole number" if whole else "a number"
    if isinstance(value, bool) or not isinstance(value, wanted) or not low <= value <= high:
        shown = "missing" if value is None else repr(value)
        raise MarsError(f"{name} is {shown}: it must be {kind} from {low:g} to {high}")


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """How to decode. Terms follow the MARS paper (arXiv 2604.07023).

    mode: "one" feeds no masks and is ordinary AR decoding; "tau" appends masks and accepts by tau;
        "verified" feeds what masks predicted as drafts and keeps those that AR would say: the text
        is that of mode "one", token for token.
    tau: acceptance threshold in [0, 1]. tau = 1 means at most one token per forward, enforced,
        because a float32 softmax can return exactly 1.
    block_size: B, the number of [MASK] slots of a forward. The last committed token predicts the
        first slot and mask i the slot after it, so B slots need only B - 1 masks to be fed.
    use_last_mask: also read the prediction of the B-th mask: up to B + 1 tokens per forward.
    drafts: in mode verified, how many are fed at most, and the masks of each group that make them.
    layout: in mode verified, "grouped" has masks behind every draft (see `mars_core.window`),
        "linear" behind the last only.
    adaptive: in mode verified, feed only drafts and masks that are worth their time, where the
        loop is told what rows cost.
    adaptive_masks: the same of the masks in mode tau (`mars_core.pacing`).
    metric: what is compared with tau, always in [0, 1], higher = surer: `probability` p1,
        `margin` p1 - p2, `entropy` exp(-H) with H in nats.
    max_new_tokens: tokens to produce at most; EOS counts as one.
    stop: strings that end the run. The token that completes one is the last; as with
        transformers' `stop_strings` it stays in the text.
    temperature: 0 is greedy. See `mars_core.sampling` for how sampling, penalty and acceptance
        combine.
    top_p: nucleus kept when sampling.
    repetition_penalty: over the prompt and everything produced, as in transformers.
    no_repeat_ngram_size: no run of so many tokens occurs twice, prompt included, as in
        transformers; 0 allows all.
    seed: of the sampling noise, keyed by (seed, row, position).
    alternatives: top tokens recorded for every slot.
    """

    mode: Mode = "tau"
    tau: float = 0.9
    block_size: int = 4
    use_last_mask: bool = False
    drafts: int = 4
    layout: Layout = "grouped"
    adaptive: bool = True
    adaptive_masks: bool = False
    metric: Metric = "probability"
    max_new_tokens: int = 128
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    seed: int = 0
    alternatives: int = 5

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, Mode)
        check_choice("metric", self.metric, Metric)
        check_range("tau", self.tau, 0, 1)
        check_range("block size", self.block_size, 1, MAX_BLOCK_SIZE, whole=True)
        check_range("drafts", self.drafts, 1, MAX_DRAFTS, whole=True)
        check_choice("layout", self.layout, Layout)
        check_range("max new tokens", self.max_new_tokens, 1, 10**6, whole=True)
        check_range("temperature", self.temperature, 0, 100)
        check_range("top-p", self.top_p, 1e-6, 1)
        check_range("repetition penalty", self.repetition_penalty, 0.1, 10)
        check_range("no repeat ngram size", self.no_repeat_ngram_size, 0, 10**6, whole=True)
        check_range("seed", self.seed, 0, MAX_SEED, whole=True)
        check_range("alternatives", self.alternatives, 0, MAX_ALTERNATIVES, whole=True)
        if any(not isinstance(text, str) or not text for text in self.stop):
            raise MarsError("a stop string must not be empty")
        if any(0xD800 <= ord(character) < 0xE000 for character in "".join(self.stop)):
            raise MarsError("a stop string contains half of a surrogate pair; remove it")

    @property
    def slots(self) -> int:
        """Predictions read per forward in mode tau: B, or B + 1 with `use_last_mask`."""
        return self.block_size + self.use_last_mask


@dataclass(frozen=True, slots=True)
class LoadConfig:
    """Which weights, and where and how they run: the arguments of `mars_core.models.load.load`."""

    model: str
    adapter: str | None = "auto"
    device: Device = "auto"
    dtype: DtypeName = "auto"
    quantize: Quantization = "none"
    mask_token: str | None = None
    models_dir: Path | None = None
    packing: bool = True
    compiled: bool = False

    def __post_init__(self) -> None:
        check_choice("device", self.device, Device)
        check_choice("dtype", self.dtype, DtypeName)
        check_choice("quantize", self.quantize, Quantization)


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids with a meaning for the loop.

    mask_id: the [MASK] token, never emitted; None when the model has none (mode "one" only).
    eos_ids: ids that end a sequence.
    """

    mask_id: int | None
    eos_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class Caching:
    """Which keys and values a batch keeps.

    strategy: "cursor" keeps what is committed at once, each row at its own pace; "block" is the
        paper's cache: rows fill a block together, at its end one more forward takes it in; "none"
        computes everything anew in every forward.
    cache_block: B_cache, tokens of a block; it need not be the B of training.
    """

    strategy: Strategy = "cursor"
    cache_block: int = 16

    def __post_init__(self) -> None:
        check_choice("cache", self.strategy, Strategy)
        check_range("cache block", self.cache_block, 1, MAX_CACHE_BLOCK, whole=True)
