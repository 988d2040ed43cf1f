"""`mars plan`: whether a model fits, before it is fetched."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, get_args

from mars_core.cli.arguments import Commands, add_models_dir, chosen_adapter
from mars_core.config import Device, check_range
from mars_core.evaluation.settings import QuantisedIn
from mars_core.models import catalog

if TYPE_CHECKING:
    from mars_core.evaluation.memory import Measured
    from mars_core.models.plan import Format, Needs
    from mars_core.models.sizes import Sizes

CARDS = (6.0, 8.0, 12.0, 16.0, 24.0)  # GB, as they are sold
CONTEXTS = (512, 2048, 8192, 32_768)


@dataclass(frozen=True, slots=True)
class Line:
    """One number format of a plan; bytes, but for the contexts (tokens).

    cache_per_token: of one sequence. here: the longest context that this machine has room for now;
    cards: that each card has. measured: by context, where it was.
    """

    form: Format
    needs: dict[int, Needs]
    cache_per_token: int
    loading: int
    here: int
    cards: dict[float, int]
    measured: dict[int, Measured]


@dataclass(frozen=True, slots=True)
class Plan:
    """A model on this machine and on cards. device, memory, free: where `Line.here` is about."""

    model: str
    licence: str | None
    adapter: str | None
    sizes: Sizes
    rows: int
    device: str
    memory: int
    free: int
    lines: list[Line]


def add_commands(commands: Commands) -> None:
    plan = commands.add_parser(
        "plan", help="memory that a model takes, and whether it fits", allow_abbrev=False
    )
    add = plan.add_argument
    add(
        "model",
        nargs="?",
        default=catalog.DEFAULT_MODEL,
        help="catalogue name, folder or hub id (%(default)s)",
    )
    add("--adapter", default="auto", help="as elsewhere: merging one takes memory while loading")
    add(
        "--contexts",
        nargs="+",
        type=int,
        default=CONTEXTS,
        help=f"tokens of prompt and answer ({' '.join(map(str, CONTEXTS))})",
    )
    add("--rows", type=int, default=1, help="sequences at once (%(default)s)")
    add("--cards", nargs="*", type=float, default=CARDS, help="GPUs by their gigabytes")
    add("--device", choices=get_args(Device), default="auto", help="of this machine (auto)")
    add(
        "--dtype",
        choices=get_args(QuantisedIn),
        default="bfloat16",
        help="what quantised weights compute in (%(default)s)",
    )
    add(
        "--measure",
        action="store_true",
        help="load each format that fits and decode, and print what it took beside the plan",
    )
    add("--json", action="store_true", help="print JSON instead of tables")
    add_models_dir(plan)
    plan.set_defaults(run=run_plan)


def run_plan(args: argparse.Namespace) -> int:
    """Print what a model takes."""
    for tokens in args.contexts:
        check_range("a context", tokens, 16, 10**7, whole=True)
    check_range("rows", args.rows, 1, 4096, whole=True)
    for gigabytes in args.cards:
        check_range("a card", gigabytes, 1, 1000)
    result = made(args)
    print(json.dumps(asdict(result), indent=1) if args.json else table(result))
    return 0


def made(args: argparse.Namespace) -> Plan:
    """The plan that the flags describe."""
    import torch

    from mars_core.about import device_name
    from mars_core.evaluation.memory import Task, measured
    from mars_core.models import plan
    from mars_core.models.hardware import choose_arithmetic, choose_device
    from mars_core.models.hush import quiet
    from mars_core.models.memory import all_bytes, free_bytes
    from mars_core.models.sizes import Sizes

    with quiet():
        config = plan.config_of(args.model, args.models_dir)
        sizes = Sizes.of(config)
    adapter, device = chosen_adapter(args), choose_device(args.device)
    on_cpu = device.type == "cpu"
    free, ram = free_bytes(device), free_bytes(torch.device("cpu"))
    contexts = sorted({min(tokens, sizes.context) for tokens in args.contexts})
    lines = []
    for form in plan.formats(args.dtype, lambda dtype: choose_arithmetic(dtype, device).packed):
        loading = sizes.loading(
            form.torch_dtype, form.quantization, merging=adapter is not None, on_cpu=on_cpu
        )
        here = plan.longest(sizes, form, int(plan.SHARE_OF_FREE * free), args.rows, on_cpu=on_cpu)
        if loading > plan.SHARE_OF_FREE * ram:
            here = 0
        task = (args.model, adapter, args.device, args.models_dir, form, args.rows)
        lines.append(
            Line(
                form,
                {
                    tokens: plan.needs(sizes, form, tokens, args.rows, on_cpu=on_cpu)
                    for tokens in contexts
                },
                sizes.cache(1, form.torch_dtype),
                loading,
                here,
                {
                    gigabytes: plan.longest(
                        sizes,
                        replace(form, packed=False),
                        plan.card_budget(gigabytes),
                        args.rows,
                        on_cpu=False,
                    )
                    for gigabytes in args.cards
                },
                {
                    tokens: measured(Task(*task, tokens))
                    for tokens in contexts
                    if args.measure and tokens <= here
                },
            )
        )
    entry = catalog.find(args.model)
    return Plan(
        model=args.model,
        licence=entry.licence if entry else None,
        adapter=adapter,
        sizes=sizes,
        rows=args.rows,
        device=device_name(device),
        memory=all_bytes(device),
        free=free,
        lines=lines,
    )


def table(plan: Plan) -> str:
    """The plan for a terminal."""
    from mars_core.models.plan import CARD_RESERVE, size_text

    sizes = plan.sizes
    sequences = "one sequence" if plan.rows == 1 else f"{plan.rows} sequences"
    contexts = list(plan.lines[0].needs)
    adapter = "an adapter to merge" if plan.adapter else "no adapter"
    about = [f"{_millions(sizes.parameters)} parameters, {adapter}, {sizes.context} positions"]
    if plan.licence:
        about.append(f"licence: {plan.licence}")
    lines = [
        f"{plan.model}: {', '.join(about)}",
        f"{plan.device}: {size_text(plan.memory)}, {size_text(plan.free)} free",
        "",
        f"weights, cache of {sequences} and workspace, by tokens of prompt and answer",
        f"{'':17}{'weights':>9}{'cache':>14}"
        + "".join(f"{f'{tokens:,}':>9}" for tokens in contexts)
        + f"{'to load':>10}{'fits here':>11}",
    ]
    for line in plan.lines:
        cache = f"{line.cache_per_token / 1000:.0f} kB/token"
        totals = "".join(f"{size_text(needs.total):>9}" for needs in line.needs.values())
        first = next(iter(line.needs.values()))
        lines.append(
            f"{line.form.name:17}{size_text(first.weights):>9}{cache:>14}{totals}"
            f"{size_text(line.loading):>10}{_context(line.here):>11}"
        )
    if plan.lines[0].cards:
        cards = "".join(f"{f'{size:g} GB':>9}" for size in plan.lines[0].cards)
        lines += ["", f"longest context on a card of, less {size_text(CARD_RESERVE)} for CUDA"]
        lines.append(f"{'':17}{cards}")
        for line in plan.lines:
            fitting = "".join(f"{_context(tokens):>9}" for tokens in line.cards.values())
            lines.append(f"{line.form.name:17}{fitting}")
    if any(line.measured for line in plan.lines):
        lines += ["", *_measured(plan)]
    return "\n".join(lines)


def _millions(count: int) -> str:
    return f"{count / 1e6:,.0f} million" if count >= 1e6 else f"{count:,}"


def _context(tokens: int) -> str:
    return f"{tokens:,}" if tokens else "no"


def _measured(plan: Plan) -> list[str]:
    """What was measured, beside what was planned."""
    from mars_core.models.plan import size_text

    lines = [f"{'':17}{'tokens':>9}{'planned':>11}{'measured':>11}{'ratio':>8}"]
    for line in plan.lines:
        for tokens, found in line.measured.items():
            planned = line.needs[tokens].total
            lines.append(
                f"{line.form.name:17}{tokens:>9,}{size_text(planned):>11}"
                f"{size_text(found.bytes):>11}{planned / found.bytes:>8.2f}"
                f"{'  ' + found.note if found.note else ''}"
            )
    return lines
