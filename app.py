"""MARS Studio: serve the page and load a model."""

from __future__ import annotations

import argparse
import os
import sys
import threading

from mars_core.cli.arguments import add_model_arguments, load_config_from, threaded_engine
from mars_core.config import check_range
from mars_core.errors import MarsError
from mars_core.model_thread import ModelThread
from mars_core.models.names import check_known


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; heavy imports come after it, so that --help is quick."""
    parser = argparse.ArgumentParser(prog="app.py", description=__doc__, allow_abbrev=False)
    add_model_arguments(parser)
    parser.add_argument(
        "--replay-only", action="store_true", help="show recordings; no model is loaded"
    )
    space = bool(os.environ.get("SPACE_ID"))  # Hugging Face sets it in a Space
    parser.add_argument(
        "--public",
        action=argparse.BooleanOptionalAction,
        default=space,
        help="for strangers: one model, limits on what each may ask (default: in a Space)",
    )
    host = "0.0.0.0" if space else "127.0.0.1"
    parser.add_argument("--host", default=host, help="address to bind to (%(default)s)")
    parser.add_argument("--port", type=int, default=7860, help="port to bind to (%(default)s)")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run the app; the exit code is 2 where the user has to change something."""
    args = parse_arguments(arguments)
    try:
        check_range("port", args.port, 0, 65535, whole=True)
        if args.replay_only:
            serve_recordings(args)
        else:
            serve(args)
    except MarsError as error:
        print(f"app.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def serve(args: argparse.Namespace) -> None:
    """Open the page first, since that is quick; load the model while it is already there."""
    check_known(args.model)

    from mars_core.export.recording import shipped_recordings
    from mars_core.switching import Switcher
    from mars_core.ui.demo import build_demo, launch
    from mars_core.ui.limits import NO_LIMITS, PUBLIC

    limits = PUBLIC if args.public else NO_LIMITS
    thread = ModelThread()
    opened = threading.Event()
    thread.submit(opened.wait)  # two heavy imports at once would only delay the page
    engine = thread.submit(lambda: threaded_engine(args, thread))
    recording = next(iter(shipped_recordings().values()), "")
    switcher = None if args.public else Switcher(thread, load_config_from(args))
    demo = build_demo(engine, args.model, recording, switcher, limits)
    address = launch(demo, args.host, args.port, limits)
    print(f"MARS Studio: {address} (Ctrl-C ends it)", file=sys.stderr)
    opened.set()
    loaded = engine.result().loaded
    print(f"{loaded.name}: {loaded.dtype_name}, {loaded.dtype_reason}", file=sys.stderr)
    demo.block_thread()


def serve_recordings(args: argparse.Namespace) -> None:
    """The page without a model, and without torch."""
    from mars_core.export.recording import shipped_recordings
    from mars_core.ui.demo import build_replay_demo, launch
    from mars_core.ui.limits import NO_LIMITS, PUBLIC

    demo = build_replay_demo(shipped_recordings())
    limits = PUBLIC if args.public else NO_LIMITS
    address = launch(demo, args.host, args.port, limits)
    print(f"MARS Studio: {address} (Ctrl-C ends it)", file=sys.stderr)
    demo.block_thread()


if __name__ == "__main__":
    sys.exit(main())
