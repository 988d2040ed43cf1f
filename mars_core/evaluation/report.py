"""`mars report`: a README's tables and figures, written from the results that they show.

A table stands between `<!-- bench: FILE -->` and `<!-- end -->`, where FILE is what `mars bench
--json` printed, beside the README or below it. Every such result with rows has a figure of the same
name, `.svg`.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

from mars_core.errors import MarsError
from mars_core.evaluation.bench import BenchResult, BenchRow, read_result, table

BLOCK = re.compile(r"(<!-- bench: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

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


def written(readme: Path) -> dict[Path, str]:
    """What README and figures have to be, by path.

    Raises MarsError for a result that is not one, and where none is shown.
    """
    text = readme.read_text(encoding="utf-8")
    results = {name: _read(readme.parent / name) for _, name, _ in BLOCK.findall(text)}
    if not results:
        raise MarsError(
            f"{readme} shows no result: put <!-- bench: FILE --> and <!-- end --> in it"
        )

    def block(found: re.Match[str]) -> str:
        return f"{found[1]}```\n{table(results[found[2]])}\n```\n{found[3]}"

    figures = {
        (readme.parent / name).with_suffix(".svg"): figure(result)
        for name, result in results.items()
        if result.rows
    }
    return {readme: BLOCK.sub(block, text), **figures}


def _read(path: Path) -> BenchResult:
    try:
        return read_result(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MarsError(f"{path} cannot be read: {error.strerror}") from None
    except MarsError as error:
        raise MarsError(f"{path} is {error}") from None


def figure(result: BenchResult) -> str:
    """The speed-ups as an SVG: a bar for every way, quartiles, and a line where AR is."""
    groups = [list(rows) for _, rows in groupby(result.rows, key=lambda r: (r.set, r.batch))]
    most = max(1.0, *(row.speed_up.high for row in result.rows))
    height = sum(HEAD + LINE * len(rows) for rows in groups) + 10
    width = LEFT + BAR + RIGHT
    about = result.about
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'width="{width}" height="{height}">',
        f"<title>Speed-up over AR: {escape(about['model']['name'])}, {escape(about['dtype'])}, "
        f"{escape(about['device'])}</title>",
        f"<style>{STYLE}</style>",
    ]
    top = 0
    for rows in groups:
        parts += _group(rows, top, BAR / most)
        top += HEAD + LINE * len(rows)
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
