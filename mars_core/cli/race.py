"""`mars race`: the same prompt in several ways, one after the other, and what it comes to."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from mars_core.cli.arguments import (
    Commands,
    add_decode_arguments,
    add_model_arguments,
    config_from,
    load_racer,
)
from mars_core.cli.generate import (
    add_prompt,
    keeping,
    messages_from,
    print_json,
    print_stream,
)
from mars_core.errors import MarsError
from mars_core.race.settings import LaneName, RaceConfig

if TYPE_CHECKING:
    from mars_core.race.records import AnyRaceRecord


def add_commands(commands: Commands) -> None:
    default = RaceConfig()
    race = commands.add_parser(
        "race",
        help="answer a prompt in several ways and compare them",
        description="Each lane is measured alone, all in turn for every repeat.",
        allow_abbrev=False,
    )
    add_prompt(race)
    lanes = " ".join(default.lanes)
    race.add_argument("--lanes", nargs="+", choices=get_args(LaneName), help=f"({lanes})")
    race.add_argument(
        "--second-tau",
        type=float,
        default=default.second_tau,
        help="of the lane second (%(default)s)",
    )
    race.add_argument(
        "--repeats", type=int, default=default.repeats, help="runs of each lane (%(default)s)"
    )
    add_model_arguments(race)
    add_decode_arguments(race)
    output = race.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print the recording as JSON Lines")
    output.add_argument("--out", type=Path, help="write the recording to this file too")
    race.set_defaults(run=run_race, lanes=default.lanes)


def run_race(args: argparse.Namespace) -> int:
    """Race; the texts as they come and a table, or the recording."""
    config = RaceConfig(config_from(args), tuple(args.lanes), args.second_tau, args.repeats)
    messages = messages_from(args)  # before the model is loaded for nothing
    if args.out is not None and not args.out.parent.is_dir():
        raise MarsError(f"{args.out}: its folder does not exist")

    from mars_core.control import LiveControl
    from mars_core.trace import write_trace

    _, racer = load_racer(args)
    command = shlex.join(["mars", *sys.argv[1:]])
    recorded = with_command(racer.race(messages, config, LiveControl(config.decode)), command)
    if args.json:
        print_json(recorded)
        return 0
    kept: list[AnyRaceRecord] = []
    show(keeping(recorded, kept))
    if args.out is not None:
        write_trace(args.out, kept)
    return 0


def with_command(recorded: Iterable[AnyRaceRecord], command: str) -> Iterator[AnyRaceRecord]:
    """The records; the first of them says how the race was made."""
    from mars_core.race.records import RaceRecord

    for record in recorded:
        if isinstance(record, RaceRecord):
            record = RaceRecord(**{**record.model_dump(), "command": command})
        yield record


def show(recorded: Iterable[AnyRaceRecord]) -> None:
    """The lanes' texts on stdout as they come, then the verdict; progress on stderr."""
    from mars_core.race import records
    from mars_core.race.table import table

    header: records.RaceRecord | None = None
    verdict: records.VerdictRecord | None = None
    for record in recorded:
        match record:
            case records.RaceRecord():
                header = record
            case records.LaneRecord():
                assert header is not None
                info = header.lanes[record.lane]
                print(f"\n— {info.name}: {info.about}", flush=True)
            case records.TimingRecord():
                assert header is not None
                name = header.lanes[record.lane].name
                print(
                    f"repeat {record.repeat + 1}, {name}: {record.decode_ms / 1000:.2f} s",
                    file=sys.stderr,
                )
            case records.VerdictRecord():
                verdict = record
            case _:
                print_stream(iter([record]))
    if header is not None and verdict is not None:
        print("\n" + table(header, verdict))
