"""Figures of a run from its log. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.colors import sample_colorscale
from plotly.subplots import make_subplots

from mars_core.training.progress import Entry

TITLES = (
    "Loss",
    "Right predictions per slot, held out (%)",
    "Predictions above .9 per slot, held out (%)",
    "Held-out tokens per forward",
)
# of the next token and the masks' mean (Okabe and Ito, safe for the colour-blind)
BLACK, BLUE = "#000000", "#0072B2"


def figure(entries: Sequence[Entry]) -> Any:
    """Four panels over minutes: losses, and per slot how often right and how often sure."""
    panels = make_subplots(rows=2, cols=2, subplot_titles=TITLES)
    trained = [entry for entry in entries if entry["kind"] == "train"]
    held_out = [entry for entry in entries if entry["kind"] == "evaluation"]
    for name, label, colour in (("ar_loss", "AR", BLACK), ("mask_loss", "masks", BLUE)):
        _add(panels, (1, 1), trained, [e[name] for e in trained], f"{label}, training", colour)
        values = [e[name] for e in held_out]
        _add(panels, (1, 1), held_out, values, f"{label}, held out", colour, dash="dot")
    slots = max((len(entry["slots"]) for entry in held_out), default=0)
    for slot, colour in enumerate(slot_colours(slots)):
        label = f"mask {slot}" if slot else "next token"
        for place, measure in (((1, 2), "right"), ((2, 1), "sure")):
            shares = [entry["slots"][slot][measure] for entry in held_out]
            values = [None if share is None else 100 * share for share in shares]
            _add(panels, place, held_out, values, label, colour, legend=measure == "right")
    values = [entry.get("tokens_per_forward") for entry in held_out]
    _add(panels, (2, 2), held_out, values, "tokens per forward", BLACK, legend=False)
    panels.update_xaxes(title_text="minutes", row=2)
    panels.update_layout(template="plotly_white", height=760)
    return panels


def slot_colours(slots: int) -> list[str]:
    """Black for the next token, then the masks from dark to light (Viridis), however many."""
    masks = [0.15 + 0.75 * i / max(1, slots - 2) for i in range(slots - 1)]
    return [BLACK, *sample_colorscale("Viridis", masks)][:slots]


def _add(
    panels: Any,
    place: tuple[int, int],
    entries: Sequence[Entry],
    values: Sequence[float | None],
    name: str,
    colour: str,
    *,
    dash: str = "solid",
    legend: bool = True,
) -> None:
    """A line over the entries' minutes, unless all of it is missing."""
    if all(value is None for value in values):
        return
    panels.add_trace(
        go.Scatter(
            x=[entry["minutes"] for entry in entries],
            y=values,
            name=name,
            mode="lines+markers",
            showlegend=legend,
            line={"color": colour, "dash": dash},
        ),
        row=place[0],
        col=place[1],
    )


def write(entries: Sequence[Entry], path: Path) -> None:
    """The figure as one page that needs no network."""
    figure(entries).write_html(path, include_plotlyjs=True)
