"""The `mars` command: generate, fetch, bench, bench-page.

Results on stdout, everything else on stderr.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from mars_core import __version__, terminal, trace
from mars_core.chat import check_messages
from mars_core.config import DecodeConfig, Device, DtypeName, Metric, Mode
from mars_core.errors import MarsError
from mars_core.model_thread import ModelThread, ThreadedEngine
from mars_core.models import catalog

if TYPE_CHECKING:
    from mars_core.models.load import LoadedModel


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code. 2 means bad input, said in one line on stderr."""
    args = build_parser().parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal that cannot show a character is no error
            stream.reconfigure(errors="replace")
    try:
        code = int(args.run(args))
        sys.stdout.flush()
        return code
    except MarsError as error:
        print(f"mars: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("", file=sys.stderr)
        return 130
    except OSError as error:
        # nothing below lets one through but writing the output
        discard_output()
        if isinstance(error, BrokenPipeError):  # the reader has enough: `mars ... | head`
            return 0
        print(f"mars: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 2


def discard_output() -> None:
    """Let nothing more be written, or the interpreter would fail again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands; its defaults are DecodeConfig's."""
    parser = argparse.ArgumentParser(
        prog="mars", description="Multi-token decoding made visible.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"mars-studio {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)

    generate = commands.add_parser("generate", help="answer a prompt", allow_abbrev=False)
    generate.add_argument("prompt", help="the user's message")
    generate.add_argument("--system", help="system prompt (default: the model's own)")
    add_model_arguments(generate)
    add_decode_arguments(generate)
    generate.add_argument("--json", action="store_true", help="print the trace as JSON Lines")
    generate.set_defaults(run=run_generate)

    fetch = commands.add_parser("fetch", help="download a model ahead of time", allow_abbrev=False)
    fetch.add_argument(
        "model", nargs="?", default=catalog.DEFAULT_MODEL, help="name from the catalogue"
    )
    add_models_dir(fetch)
    fetch.set_defaults(run=run_fetch)

    bench = commands.add_parser(
        "bench", help="time forwards, and AR against transformers", allow_abbrev=False
    )
    add_model_arguments(bench)
    bench.add_argument("--repeats", type=int, default=7, help="interleaved repeats (%(default)s)")
    bench.add_argument("--max-new-tokens", type=int, default=128, help="tokens of each AR run")
    bench.add_argument("--json", action="store_true", help="print JSON instead of tables")
    bench.set_defaults(run=run_bench)

    page = commands.add_parser(
        "bench-page", help="time decoding through the page against headless", allow_abbrev=False
    )
    add_model_arguments(page)
    page.add_argument("--repeats", type=int, default=5, help="interleaved pairs (%(default)s)")
    page.add_argument("--max-new-tokens", type=int, default=128, help="tokens of each run")
    page.add_argument(
        "--no-browser", dest="browser", action="store_false", help="without the real Chromium"
    )
    page.add_argument("--json", action="store_true", help="print JSON instead of tables")
    page.set_defaults(run=run_bench_page)
    return parser


def add_models_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--models-dir",
        type=Path,
        help="where fetched models live (default: MARS_MODELS_DIR, else the user's cache)",
    )


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Which weights, and where they run; shared with app.py."""
    parser.add_argument(
        "--model",
        default=catalog.DEFAULT_MODEL,
        help="catalogue name, folder or hub id (%(default)s)",
    )
    parser.add_argument("--adapter", help="PEFT adapter to merge: folder or hub id")
    parser.add_argument("--mask-token", help="token (or its id) to use as [MASK]")
    parser.add_argument("--device", choices=get_args(Device), default="auto")
    parser.add_argument(
        "--dtype",
        choices=get_args(DtypeName),
        default="auto",
        help="number format; auto takes the faster of a short probe",
    )
    parser.add_argument(
        "--no-packing",
        dest="packing",
        action="store_false",
        help="plain linear layers also where packed ones are faster",
    )
    add_models_dir(parser)


def add_decode_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag per DecodeConfig field, with its default."""
    default = DecodeConfig()
    add = parser.add_argument
    add("--mode", choices=get_args(Mode), default=default.mode, help="one: plain AR, no masks")
    add("--tau", type=float, default=default.tau, help="acceptance threshold, 0 to 1 (%(default)s)")
    add("--block-size", type=int, default=default.block_size, help="mask slots B (%(default)s)")
    add("--use-last-mask", action="store_true", help="read the B-th mask too: up to B + 1 tokens")
    add("--metric", choices=get_args(Metric), default=default.metric, help="confidence metric")
    add("--max-new-tokens", type=int, default=default.max_new_tokens, help="(%(default)s)")
    add("--stop", action="append", default=[], help="end after this string (repeatable; kept)")
    add("--temperature", type=float, default=default.temperature, help="0 is greedy (%(default)s)")
    add("--top-p", type=float, default=default.top_p, help="nucleus when sampling (%(default)s)")
    add("--repetition-penalty", type=float, default=default.repetition_penalty)
    add("--seed", type=int, default=default.seed, help="of the sampling noise (%(default)s)")
    add("--alternatives", type=int, default=default.alternatives, help="recorded per slot")


def config_from(args: argparse.Namespace) -> DecodeConfig:
    """The DecodeConfig that the flags describe."""
    values = {field.name: getattr(args, field.name) for field in fields(DecodeConfig)}
    return DecodeConfig(**{**values, "stop": tuple(values["stop"])})


def load_model(args: argparse.Namespace) -> LoadedModel:
    """The model that the flags of `add_model_arguments` describe; progress on stderr."""
    from mars_core.models.load import load  # torch: not needed to print --help
    from mars_core.models.progress import TerminalProgress

    with TerminalProgress() as progress:
        return load(
            args.model,
            adapter=args.adapter,
            device=args.device,
            dtype=args.dtype,
            mask_token=args.mask_token,
            models_dir=args.models_dir,
            packing=args.packing,
            progress=progress,
        )


def threaded_engine(args: argparse.Namespace, thread: ModelThread) -> ThreadedEngine:
    """A page's engine, ready for its settings; everything it computes is done in `thread`, which
    has to run this too."""
    loaded = load_model(args)

    from mars_core.engine import Engine

    engine = Engine(loaded)
    engine.warm_up(DecodeConfig())
    return ThreadedEngine(engine, thread)


def run_generate(args: argparse.Namespace) -> int:
    """Stream one answer, coloured, or its trace."""
    config = config_from(args)
    messages = [trace.Message(role="user", content=args.prompt)]
    if args.system is not None:
        messages.insert(0, trace.Message(role="system", content=args.system))
    check_messages(messages)  # before the model is loaded for nothing
    loaded = load_model(args)

    from mars_core.engine import Engine

    records = Engine(loaded).generate(messages, config)
    if args.json:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        for record in records:
            print(trace.dump_record(record), flush=True)
    else:
        print_stream(records)
    return 0


def print_stream(records: Iterator[trace.AnyRecord]) -> None:
    """The answer on stdout as it comes, tinted by forward on a terminal; figures on stderr."""
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for record in records:
        match record:
            case trace.Header():
                trained = "MARS-trained" if record.model.trained else "not trained for MARS"
                dtype = f"{record.dtype} ({record.dtype_reason})"
                about = (record.model.name, trained, record.model.weights, dtype, record.device)
                print(terminal.printable(", ".join(about)), file=sys.stderr)
            case trace.StepRecord():
                print(terminal.step_text(record, colour=colour), end="", flush=True)
            case trace.DoneRecord():
                print(terminal.printable(record.tail), flush=True)
                print(terminal.summary_line(record), file=sys.stderr)


def run_fetch(args: argparse.Namespace) -> int:
    """Download and convert a catalogue model."""
    from mars_core.models import fetch
    from mars_core.models.progress import TerminalProgress

    entry = catalog.find(args.model)
    if entry is None:
        raise MarsError(f"unknown model {args.model!r}: known are {', '.join(catalog.names())}")
    with TerminalProgress() as progress:
        folder = fetch.fetch(entry, fetch.models_dir(args.models_dir), progress)
    print(folder)
    return 0


def run_bench(args: argparse.Namespace) -> int:
    """Measure and print tables, or JSON."""
    loaded = load_model(args)

    from mars_core.evaluation.bench import bench, table

    result = bench(loaded, args.repeats, args.max_new_tokens)
    print(json.dumps(asdict(result), indent=1) if args.json else table(result))
    return 0


def run_bench_page(args: argparse.Namespace) -> int:
    """Serve the page, measure it from outside, and print a table, or JSON."""
    thread = ModelThread()
    engine = thread.submit(lambda: threaded_engine(args, thread))
    ready = engine.result()

    from mars_core.evaluation.page import page_cost, table
    from mars_core.ui.demo import build_demo, launch

    @contextmanager
    def serve() -> Iterator[str]:
        demo = build_demo(engine)
        try:
            yield launch(demo, "127.0.0.1", None)
        finally:
            demo.close(verbose=False)

    result = page_cost(ready, serve, args.repeats, args.max_new_tokens, with_browser=args.browser)
    print(json.dumps(asdict(result), indent=1) if args.json else table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
