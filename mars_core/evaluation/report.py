"""`mars report`: the tables and figures of a README or card, written from the results they show.

Tables stand between `<!-- bench: FILE FILE ... -->` and `<!-- end -->`, where FILE is what `mars
bench --json` printed, by its path from the document. The rows of a block have a figure, `.svg`, of
the file's name, or of what the names of several have in common.
`<!-- decoding: FILE FILE ... -->` is one table of what `mars evaluate decoding` printed so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Generic, TypeVar
from xml.sax.saxutils import escape

from mars_core.errors import MarsError
from mars_core.evaluation import bench, decoding_table
from mars_core.evaluation.bench import BenchResult, BenchRow
from mars_core.evaluation.decoding import DecodingResult
from mars_core.evaluation.results import read_result

R = TypeVar("R")
BLOCK = re.compile(r"(<!-- (bench|decoding): (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)

# a bar for each way: name, bar, numbers; lengths in pixels
LEFT, BAR, RIGHT, LINE, HEAD = 170, 380, 150, 22, 46
STYLE = """
svg { font: 13px system-ui, sans-serif; }
text { fill: #24292f; } .quiet { fill: #57606a; } .bar { fill: #0072b2; } .less { fill: #8c959f; }
.one { stroke: #24292f; stroke-dasharray: 3 3; } .spread { stroke: #24292f; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .quiet { fill: #9198a1; } .bar { fill: #56b4e9; } .less { fill: #656c76; }
  .one, .spread { stroke: #e6edf3; }
}
"""


@dataclass(frozen=True, slots=True)
class Kind(Generic[R]):
    """A command whose results are shown: what it prints, and how that looks."""

    result: type[R]
    command: str
    shown: Callable[[Sequence[R]], str]

    def read(self, paths: Sequence[Path]) -> list[R]:
        return [read_result(path, self.result, f"{self.command} --json") for path in paths]


KINDS: dict[str, Kind[Any]] = {
    "bench": Kind(BenchResult, "mars bench", lambda found: fenced(bench.table(*found))),
    "decoding": Kind(DecodingResult, "mars evaluate decoding", decoding_table.markdown),
}


def written(document: Path) -> dict[Path, str]:
    """What a document and its figures have to be, by path.

    Raises MarsError for a result that is not one, and where none is shown.
    """
    try:
        text = document.read_text(encoding="utf-8")
    except OSError as error:
        raise MarsError(f"{document} cannot be read: {error.strerror}") from None
    figures: dict[Path, str] = {}

    def block(found: re.Match[str]) -> str:
        start, kind, names, end = found.groups()
        paths = [document.parent / name for name in names.split()]
        results = KINDS[kind].read(paths)
        if kind == "bench" and any(result.rows for result in results):
            figures[paths[0].with_name(f"{common_name(paths)}.svg")] = figure(*results)
        return f"{start}{KINDS[kind].shown(results)}\n{end}"

    shown, count = BLOCK.subn(block, text)
    if not count:
        raise MarsError(
            f"{document} shows no result: put <!-- bench: FILE --> and <!-- end --> in it"
        )
    return {document: shown, **figures}


def common_name(paths: Sequence[Path]) -> str:
    """The words, by place, that all names have; of one file, its name."""
    places = zip(*(path.stem.split("-") for path in paths), strict=False)
    common = [words[0] for words in places if len(set(words)) == 1]
    return "-".join(common) or paths[0].stem


def fenced(text: str) -> str:
    """Text as it is, in Markdown."""
    return f"```\n{text}\n```"


def figure(*results: BenchResult) -> str:
    """The speed-ups as an SVG: a bar for every way, quartiles, and a line where AR is."""
    groups = [
        list(rows)
        for result in results
        for _, rows in groupby(result.rows, key=lambda row: (row.set, row.batch))
    ]
    most = max(1.0, *(row.speed_up.high for rows in groups for row in rows))
    height = sum(HEAD + LINE * len(group) for group in groups) + 10
    width = LEFT + BAR + RIGHT
    about = results[0].about
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'width="{width}" height="{height}">',
        f"<title>Speed-up over AR: {escape(about['model']['name'])}, {escape(about['dtype'])}, "
        f"{escape(about['device'])}</title>",
        f"<style>{STYLE}</style>",
    ]
    top = 0
    for group in groups:
        parts += _group(group, top, BAR / most)
        top += HEAD + LINE * len(group)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _group(rows: list[BenchRow], top: int, scale: float) -> list[str]:
    """A set at a batch size; scale: pixels of a speed-up of 1."""
    first, bottom = rows[0], top + HEAD + LINE * len(rows)
    title = f"{first.n} prompts of {first.set}, {first.batch} at once"
    one = LEFT + scale
    parts = [
        f'<text x="0" y="{top + 20}" font-weight="600">{escape(title)}</text>',
        f'<text x="{one:.1f}" y="{top + 38}" class="quiet" text-anchor="middle">AR = 1</text>',
    ]
    for i, row in enumerate(rows):
        y = top + HEAD + LINE * i
        up = row.speed_up
        end = LEFT + scale * up.median
        middle = y + LINE / 2
        kind = "bar" if up.median >= 1 else "less"
        parts += [
            f'<text x="{LEFT - 8}" y="{middle + 4}" text-anchor="end">{escape(row.way)}</text>',
            f'<rect x="{LEFT}" y="{y + 4}" width="{end - LEFT:.1f}" height="{LINE - 8}" '
            f'class="{kind}"/>',
            f'<line x1="{LEFT + scale * up.low:.1f}" x2="{LEFT + scale * up.high:.1f}" '
            f'y1="{middle}" y2="{middle}" class="spread"/>',
            f'<text x="{LEFT + BAR + 8}" y="{middle + 4}">{up.median:.2f}x'
            f'<tspan class="quiet"> {row.per_second.median:.1f} tok/s</tspan></text>',
        ]
    line = f'<line x1="{one:.1f}" x2="{one:.1f}" y1="{top + HEAD}" y2="{bottom}" class="one"/>'
    return [*parts, line]
