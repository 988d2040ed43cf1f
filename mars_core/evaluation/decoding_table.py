"""What `mars evaluate decoding` measured as a table: for a terminal, and for a card in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mars_core.evaluation.bootstrap import spread
from mars_core.evaluation.decoding import DecodingResult, Row

HEAD = (
    "prompts",
    "tau",
    "n",
    "tokens per forward",
    "AR agreement of tokens from masks (%)",
    "right (%)",
    "minus AR",
    "same text (%)",
    "looping (%)",
)


def table(result: DecodingResult) -> str:
    """The result for a terminal, its conditions first."""
    about = result.about
    model = about["model"]
    trained = f"adapter {model['adapter']}" if model["adapter"] else model["weights"]
    lines = [
        f"{model['name']} ({trained}), {about['dtype']}, {about['device']}",
        f"greedy, {about['slots']} slots, at most {about['settings']['max_new_tokens']} tokens; "
        "95 % intervals by bootstrap over prompts",
        "tau 1 is AR; looping answers count in n, right and looping only",
        *_about_drafts(about["settings"]),
        "",
        f"{'':12} tau       n  tokens per forward  agreement %        right %  - AR"
        "                  same %  looping %",
        *(line(row) for row in result.rows),
        *mask_lines([result]),
    ]
    return "\n".join(lines)


def _about_drafts(settings: Mapping[str, Any]) -> list[str]:
    if not settings["verified"]:
        return []
    return [f"verified: at most {settings['drafts']} drafts, {settings['layout']}"]


def line(row: Row) -> str:
    """One row of the terminal's table."""
    way = "verif." if row.tau is None else row.tau
    cells = [
        f"{row.set:12} {way:<7}{row.n:4}",
        f"{spread(row.tokens_per_forward, 1, 2):18}",
        f"{spread(row.agreement, 100, 1):18}",
        f"{'' if row.right is None else format(100 * row.right.value, '.1f'):>7}",
        f"{spread(row.gain, 100, 1):18}",
        f"{_percent(row.same):>8}",
        f"{100 * row.looping:9.0f}",
    ]
    return "  ".join(cells)


def markdown(results: Sequence[DecodingResult]) -> str:
    """The rows of several results in one table, and what their masks guess.

    What several of them say alike, such as AR of the same prompts, is said once.
    """
    rows = [cells(row, one.about["settings"]["drafts"]) for one in results for row in one.rows]
    lines = [HEAD, ("---",) * len(HEAD), *dict.fromkeys(rows)]
    masks = dict.fromkeys(mask_lines(results))
    return "\n".join([*(f"| {' | '.join(one)} |" for one in lines), "", *masks])


def cells(row: Row, drafts: int) -> tuple[str, ...]:
    """One row of the Markdown table; what a comparison of AR with itself would say is left out.

    drafts: how many verified decoding fed at most.
    """
    ar, verified = row.tau == 1, row.tau is None
    return (
        row.set,
        f"verified, {drafts} drafts" if verified else f"{row.tau:g}",
        str(row.n),
        spread(row.tokens_per_forward, 1, 2),
        "" if ar or verified else spread(row.agreement, 100, 1),
        "" if row.right is None else f"{100 * row.right.value:.1f}",
        "" if ar else spread(row.gain, 100, 1),
        "" if ar else _percent(row.same),
        _percent(row.looping),
    )


def mask_lines(results: Sequence[DecodingResult]) -> list[str]:
    """How often each mask guesses AR's continuation, a line for every set."""
    return [
        f"{row.set}: masks that guess AR's continuation: {', '.join(map(_percent, row.masks))} %"
        for result in results
        for row in result.rows
        if row.masks
    ]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f}"
