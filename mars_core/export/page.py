"""A recording as one page that needs no server, no model and no network."""

from __future__ import annotations

from mars_core.export.player import LIVE_FILES, PLAYER_FILES, player_text, style_element

# in the shell, where it first occurs; the page in the browser fills it too
PLACE = "__RECORDING__"

SHEET = """
body { background: #faf9f6; margin: 0 auto; max-width: 1180px; padding: 22px 20px; }
.dark body { background: #121419; color-scheme: dark; }
"""
SCRIPT = """
const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark", dark.matches);
dark.addEventListener("change", follow);
follow();
const lines = document.querySelector("#recording").textContent.trim();
window.marsReplay = createReplay(document.querySelector("main"), `${lines}\\n`);
"""


def shell() -> str:
    """The page without its recording: PLACE is to become JSON Lines, "<" escaped."""
    names = [name for name in PLAYER_FILES if name not in LIVE_FILES]
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        "<title>MARS Studio recording</title>\n"
        f"{style_element(SHEET)}\n<main></main>\n"
        f'<script type="application/jsonl" id="recording">{PLACE}</script>\n'
        f"<script>(() => {{\n{player_text(names)}\n{SCRIPT}}})();</script>\n</html>\n"
    )


def replay_page(lines: str) -> str:
    """The page of a recording, given as JSON Lines."""
    # nothing in it can end the element it stands in; to JSON the escape is the character
    return shell().replace(PLACE, lines.replace("<", "\\u003c"), 1)
