"""The sources of the player in the browser, which the page and every exported page contain."""

from __future__ import annotations

from collections.abc import Iterable

from mars_core.paths import assets_dir

PLAYER_FILES = (
    "dom.js", "text.js", "colours.js", "passes.js", "card.js", "run.js", "turns.js",
    "reader.js", "feed.js", "timeline.js", "strip.js", "capture.js", "save.js", "facts.js",
    "plot.js", "chart.js", "frame.js", "player.js", "lane.js", "rows.js", "verdict.js", "race.js",
    "replay.js", "studio.js",
)  # fmt: skip
# what a page that only replays can do without
LIVE_FILES = frozenset({"plot.js", "studio.js"})
PLAYER_SHEETS = ("colours.css", "player.css", "stream.css", "plot.css", "race.css")
SHEET_ID = "mars-sheet"  # of the style element: pictures take the rules from there


def player_text(names: Iterable[str]) -> str:
    """These files of the player, one after the other."""
    folder = assets_dir() / "player"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def style_element(more: str = "") -> str:
    """The player's rules, and `more`, as an element for a page's head."""
    return f'<style id="{SHEET_ID}">{player_text(PLAYER_SHEETS)}\n{more}</style>'
