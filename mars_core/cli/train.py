"""`mars train`: fine-tune a model for MARS decoding."""

from __future__ import annotations

import argparse
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from mars_core.cli.arguments import Commands, add_base_arguments
from mars_core.models.progress import TerminalProgress
from mars_core.training.recipe import RECIPES, run_recipe
from mars_core.training.settings import (
    CONFIG,
    TrainConfig,
    from_mapping,
    read_yaml,
)

DESCRIPTION = """\
Fine-tune a model for MARS decoding. Data are conversations: .jsonl files, gzipped or not, or
Hugging Face data sets by name. The run's folder gets checkpoints, a log, a plot, the whole
configuration, and at the end adapter/ (for --adapter of the other commands) or model/.
"""
# fields of TrainConfig by group; what stands in brackets is the default
HELP: dict[str, dict[str, str]] = {
    "data": {
        "data": "where examples come from, each with its part of the mix if wanted",
        "held_out": "evaluation prompts; data like them is left out (all of the project's)",
        "max_length": "tokens of prompt and answer",
        "limit": "examples taken from each source",
        "validation": "share of the prompts held out",
        "max_validation": "held-out examples at most",
    },
    "what is trained": {
        "method": "a LoRA adapter, or all weights",
        "adapter": "one to go on from, of the same rank: folder or hub id",
        "rank": "of the adapter",
        "alpha": "of the adapter (its rank)",
        "dropout": "of the adapter",
        "compile": "torch.compile: faster steps after about a minute; needs a C++ compiler",
        "attention": "flex needs a GPU; eager is fastest on a CPU, compiled",
    },
    "objective": {
        "block_sizes": "B, or several to be drawn from",
        "random_phase": "blocks begin anywhere, not at the sequence's start",
        "copies": "noisy streams per clean one",
        "ar_weight": "of the loss on the clean stream",
        "mask_weight": "of the loss on the noisy streams",
        "mask_labels": "what masks learn: the data's tokens, or AR's own choices where known",
        "ar_teacher": "share of the original weights' prediction in what the clean stream learns",
        "unlikelihood": "weight of what looping answers teach: not to repeat (0: left out)",
    },
    "steps": {
        "minutes": "budget; what ends first ends the run",
        "steps": "budget",
        "batch_size": "sequences per step",
        "accumulate": "parts a step is done in, to save memory",
        "lr": "peak learning rate (4e-3 for lora, 1e-5 for full)",
        "mask_lr_scale": "of the mask's embedding, times lr",
        "warmup": "share of the run",
        "floor": "what the cosine ends at, as a share of lr",
        "weight_decay": "of matrices",
        "clip": "norm of the gradient",
        "seed": "of data order, blocks and new weights",
    },
    "progress": {
        "evaluate_minutes": "between evaluations",
        "evaluate_prompts": "held-out prompts decoded each time",
        "evaluate_tokens": "tokens decoded for each",
        "tau": "threshold while decoding them",
        "checkpoint_minutes": "between checkpoints",
        "log_steps": "between lines of the log",
        "resume": "go on from the last checkpoint in OUT, as the run was begun",
    },
}
METAVARS = {"data": "NAME[=WEIGHT]", "held_out": "FILE", "block_sizes": "B"}
HINTS = get_type_hints(TrainConfig)
DEFAULTS = {field.name: field.default for field in fields(TrainConfig)}


def add_commands(commands: Commands) -> None:
    train = commands.add_parser(
        "train",
        help="fine-tune a model for MARS decoding",
        description=DESCRIPTION,
        allow_abbrev=False,
        # only what is given reaches the configuration, or defaults would hide the file's settings
        argument_default=argparse.SUPPRESS,
    )
    train.add_argument("--out", type=Path, help="the run's folder")
    train.add_argument("--config", type=Path, help="settings in YAML, which flags override")
    train.add_argument(
        "--recipe",
        choices=tuple(RECIPES),
        help="a whole run, from making its data to evaluating its weights; wants OUT and --minutes",
    )
    add_base_arguments(train)
    for title, names in HELP.items():
        group = train.add_argument_group(title)
        for name, text in names.items():
            add_setting(group, name, text)
    train.add_argument(
        "--no-ar-loss", dest="ar_weight", action="store_const", const=0.0, help="--ar-weight 0"
    )
    train.set_defaults(run=run_train)


def add_setting(group: Any, name: str, text: str) -> None:
    """The flag of one field of TrainConfig, by its type and default."""
    flag, default = name.replace("_", "-"), DEFAULTS[name]
    if "(" not in text and default not in (None, MISSING):
        text += f" ({', '.join(map(str, default)) if isinstance(default, tuple) else default})"
    kind, many = value_type(HINTS[name])
    if kind is bool:
        group.add_argument(f"--{flag}", action=argparse.BooleanOptionalAction, help=text)
        return
    group.add_argument(
        f"--{flag}",
        type=kind if kind in (int, float, Path) else str,
        choices=get_args(kind) or None,
        nargs="+" if many else None,
        metavar=METAVARS.get(name),
        help=text,
    )


def value_type(hint: Any) -> tuple[Any, bool]:
    """The type of one value, and whether there may be several."""
    options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    kind = next(option for option in options if option is not NoneType)
    return (get_args(kind)[0], True) if get_origin(kind) is tuple else (kind, False)


def run_train(args: argparse.Namespace) -> int:
    """Train, or follow a recipe; the folder of the weights goes to stdout."""
    given = {k: v for k, v in vars(args).items() if k not in ("run", "command", "config", "recipe")}
    file = args.config if "config" in args else None
    if file is None and given.get("resume") and "recipe" not in args and "data" not in given:
        file = given.get("out", Path()) / CONFIG  # what the run was begun with
    values = {**(read_yaml(file) if file else {}), **given}
    if "recipe" in args:
        with TerminalProgress() as progress:
            print(run_recipe(RECIPES[args.recipe], values, progress=progress))
        return 0
    config = from_mapping(values)  # before torch is imported for nothing

    from mars_core.models.hush import quiet

    with quiet():
        from mars_core.training.train import Processes, run
    with TerminalProgress() as progress:
        folder = run(config, progress=progress)
    if Processes.here().index == 0:
        print(folder)
    return 0
