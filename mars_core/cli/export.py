"""`mars export`: a recording as a page of its own, a table, a picture or an animation."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from mars_core.cli.arguments import Commands, settings_from
from mars_core.errors import MarsError

if TYPE_CHECKING:
    from mars_core.export.frames import Look
    from mars_core.export.recording import Recording

DESCRIPTION = """\
OUT's ending says what it becomes: .html (a page that needs no server), .csv (every slot), .png (the
end), .webp or .gif (the whole as an animation), .jsonl (checked and as it is). Pictures and
animations need Playwright and a Chromium.
"""
HELP = {
    "width": "of a picture, CSS pixels",
    "scale": "pixels for each of them",
    "speed": "of an animation",
    "rate": "frames per second of an animation",
}


def add_commands(commands: Commands) -> None:
    from mars_core.export.frames import Look

    export = commands.add_parser(
        "export",
        help="a recording as a page, a table, a picture or an animation",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = export.add_argument
    add("recording", type=Path, help="of a run or a race (.jsonl)")
    add("out", type=Path, help="the file to be written")
    look = Look()
    for field in fields(Look):
        if field.name in HELP:
            default = getattr(look, field.name)
            text = f"{HELP[field.name]} ({default:g})"
            add(f"--{field.name}", type=type(default), default=default, help=text)
    add("--dark", action="store_true", help="pictures on a dark ground")
    export.set_defaults(run=run_export)


def run_export(args: argparse.Namespace) -> int:
    """Write the file."""
    from mars_core.export.frames import Look
    from mars_core.export.recording import read_recording

    kind = args.out.suffix.lower().removeprefix(".")
    look = settings_from(args, Look)
    args.out.write_bytes(made(kind, read_recording(args.recording), look))
    print(args.out)
    return 0


def made(kind: str, recording: Recording, look: Look) -> bytes:
    """The bytes of a file of this kind."""
    from mars_core.export import frames
    from mars_core.export.animation import animation
    from mars_core.export.page import replay_page
    from mars_core.export.recording import lines
    from mars_core.export.slots import slots_csv

    text = lines(recording)
    match kind:
        case "html":
            return replay_page(text).encode()
        case "csv":
            return slots_csv(recording).encode()
        case "jsonl":
            return text.encode()
        case "png":
            return frames.picture(text, look)
        case "webp" | "gif":
            return animation(frames.frames(text, look), look.frame_ms, kind)
    raise MarsError(
        f"what is {kind or 'no ending'}? name the file .html, .csv, .png, .webp, .gif or .jsonl"
    )
