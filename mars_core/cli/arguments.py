"""Flags that several commands share, and what is made of them."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from mars_core.config import (
    Caching,
    DecodeConfig,
    Device,
    DtypeName,
    Layout,
    LoadConfig,
    Metric,
    Mode,
    Quantization,
    Strategy,
)
from mars_core.models import catalog
from mars_core.models.progress import Progress, TerminalProgress, silent, together

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from mars_core.engine import Engine
    from mars_core.model_thread import ModelThread, ThreadedEngine
    from mars_core.models.load import LoadedModel
    from mars_core.race.lanes import Racer

T = TypeVar("T", bound="DataclassInstance")
# what `add_subparsers` returns; its class has no public name
Commands = Any


def add_models_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--models-dir",
        type=Path,
        help="where fetched models live (default: MARS_MODELS_DIR, else the user's cache)",
    )


def add_base_arguments(parser: argparse.ArgumentParser) -> None:
    """Which model, and where it runs."""
    parser.add_argument(
        "--model", help=f"catalogue name, folder or hub id ({catalog.DEFAULT_MODEL})"
    )
    parser.add_argument("--mask-token", help="token (or its id) to use as [MASK]")
    parser.add_argument("--device", choices=get_args(Device), help="(auto)")
    parser.add_argument(
        "--dtype",
        choices=get_args(DtypeName),
        help="number format; auto, the default, takes the faster of a short probe",
    )
    add_models_dir(parser)
    if parser.argument_default != argparse.SUPPRESS:
        parser.set_defaults(model=catalog.DEFAULT_MODEL, device="auto", dtype="auto")


def add_model_arguments(parser: argparse.ArgumentParser, *, quantize: bool = True) -> None:
    """Which weights, and where they run; shared with app.py. quantize: also in how many bits."""
    add_base_arguments(parser)
    parser.add_argument(
        "--adapter",
        default="auto",
        help="PEFT adapter to merge: folder or hub id; auto, the default, is the one shipped with "
        "the model, none the model's own weights",
    )
    parser.add_argument(
        "--no-packing",
        dest="packing",
        action="store_false",
        help="plain linear layers also where packed ones are faster",
    )
    parser.add_argument(
        "--compiled",
        action="store_true",
        help="for GPUs: forwards of a few fixed shapes, compiled first (a minute or so for each)",
    )
    if not quantize:
        parser.set_defaults(quantize="none")
        return
    parser.add_argument(
        "--quantize",
        choices=get_args(Quantization),
        default="none",
        help="weights of linear layers in 8 or 4 bits, for memory they do not fit into (none)",
    )


def add_greedy_arguments(parser: argparse.ArgumentParser) -> None:
    """The fields of DecodeConfig that matter without sampling, with their defaults."""
    default = DecodeConfig()
    add = parser.add_argument
    add(
        "--mode",
        choices=get_args(Mode),
        default=default.mode,
        help="one: plain AR, no masks; tau: masks taken by tau; verified: masks draft, AR checks",
    )
    add("--tau", type=float, default=default.tau, help="acceptance threshold, 0 to 1 (%(default)s)")
    add("--block-size", type=int, default=default.block_size, help="mask slots B (%(default)s)")
    add("--use-last-mask", action="store_true", help="read the B-th mask too: up to B + 1 tokens")
    add(
        "--adaptive-masks",
        action="store_true",
        help="mode tau, without a draft model: feed only masks that are worth their time here",
    )
    add_draft_arguments(parser)
    add("--metric", choices=get_args(Metric), default=default.metric, help="confidence metric")
    add("--max-new-tokens", type=int, default=default.max_new_tokens, help="(%(default)s)")
    add("--repetition-penalty", type=float, default=default.repetition_penalty)
    add("--no-repeat-ngram-size", type=int, default=default.no_repeat_ngram_size, help="0: off")


def add_draft_arguments(parser: argparse.ArgumentParser, *, adaptive: bool = True) -> None:
    """The fields of DecodeConfig that mode verified reads; adaptive: that one too."""
    default, add = DecodeConfig(), parser.add_argument
    add(
        "--drafts",
        type=int,
        default=default.drafts,
        help="mode verified: drafts per forward at most, and masks of each group (%(default)s)",
    )
    add(
        "--layout",
        choices=get_args(Layout),
        default=default.layout,
        help="mode verified: masks behind every draft, or behind the last (%(default)s)",
    )
    if adaptive:
        add(
            "--no-adaptive",
            dest="adaptive",
            action="store_false",
            help="mode verified: feed all drafts and masks, whatever rows cost here",
        )


def add_caching_arguments(parser: argparse.ArgumentParser) -> None:
    """How many rows at once, and what of them is cached."""
    default, add = Caching(), parser.add_argument
    add("--rows", type=int, default=8, help="sequences decoded at once (%(default)s)")
    add(
        "--cache",
        dest="strategy",
        choices=get_args(Strategy),
        default=default.strategy,
        help="cursor: each row at its own pace; block: the paper's, in step; none (%(default)s)",
    )
    add(
        "--cache-block",
        type=int,
        default=default.cache_block,
        help="tokens of a block of the block cache, B_cache (%(default)s)",
    )


def add_decode_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag per DecodeConfig field, with its default."""
    add_greedy_arguments(parser)
    default = DecodeConfig()
    add = parser.add_argument
    add("--stop", action="append", default=[], help="end after this string (repeatable; kept)")
    add("--temperature", type=float, default=default.temperature, help="0 is greedy (%(default)s)")
    add("--top-p", type=float, default=default.top_p, help="nucleus when sampling (%(default)s)")
    add("--seed", type=int, default=default.seed, help="of the sampling noise (%(default)s)")
    add("--alternatives", type=int, default=default.alternatives, help="recorded per slot")


def config_from(args: argparse.Namespace) -> DecodeConfig:
    """The DecodeConfig that the flags describe; fields without a flag have their default."""
    given = vars(args)
    values = {
        field.name: given[field.name] for field in fields(DecodeConfig) if field.name in given
    }
    return DecodeConfig(**{**values, "stop": tuple(values.get("stop", ()))})


def settings_from(args: argparse.Namespace, kind: type[T]) -> T:
    """The settings whose fields the flags are named after; several values make a tuple."""
    values = {field.name: getattr(args, field.name) for field in fields(kind)}
    return kind(**{n: tuple(v) if isinstance(v, list) else v for n, v in values.items()})


def chosen_adapter(args: argparse.Namespace) -> str | None:
    """The adapter that `add_model_arguments` asks for; None for the model's own weights."""
    from mars_core.models.adapter import chosen  # torch: not needed to print --help

    return chosen(args.model, named_adapter(args))


def named_adapter(args: argparse.Namespace) -> str | None:
    """The same as it was written, without looking for the one that is shipped."""
    return None if args.adapter == "none" else args.adapter


def load_config_from(args: argparse.Namespace) -> LoadConfig:
    """What the flags of `add_model_arguments` describe."""
    return replace(settings_from(args, LoadConfig), adapter=named_adapter(args))


def load_model(args: argparse.Namespace) -> LoadedModel:
    """The model that the flags of `add_model_arguments` describe; progress on stderr."""
    return load_shown(load_config_from(args))


def load_shown(config: LoadConfig, also: Progress = silent) -> LoadedModel:
    """A model; progress, and what is to be known of it, on stderr. also: is told as well."""
    from mars_core.models.load import load_as  # torch: not needed to print --help

    with TerminalProgress() as progress:
        loaded = load_as(config, together(progress, also))
    if loaded.quantization_note:
        print(f"{loaded.name}: {loaded.quantization_note}", file=sys.stderr)
    if loaded.licence == catalog.UNKNOWN_LICENCE:
        print(f"{loaded.name}: its licence is {loaded.licence}", file=sys.stderr)
    return loaded


def load_racer(args: argparse.Namespace) -> tuple[Engine, Racer]:
    """An engine for the model that the flags describe, and what races it."""
    from mars_core.race.lanes import open_racer

    return open_racer(load_config_from(args), load_shown)


def threaded_engine(
    args: argparse.Namespace, thread: ModelThread, progress: Progress = silent
) -> ThreadedEngine:
    """A page's engine, ready for its settings; everything it computes is done in `thread`, which
    has to run this too. progress: is told besides the terminal."""
    from mars_core.model_thread import ThreadedEngine
    from mars_core.switching import open_for_page

    reopen = partial(open_for_page, load_config_from(args), partial(load_shown, also=progress))
    return ThreadedEngine(*reopen(), thread, reopen)
