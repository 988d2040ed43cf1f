"""The look of the confidence plot, as a Plotly figure without data. No torch, no Gradio.

The plot is split between Python and the browser. The browser has every record of the run already
(the text is drawn from them), so `assets/player/plot.js` puts the data in: a live run, a replay and
a saved page then need no server for it. What a plot looks like is declared here, where Plotly's own
schema can check it: a test builds the figure strictly, and a misspelt attribute fails.

Colours are in neither: the browser reads them from the player's sheet, which knows light from dark.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

CLEAR = "rgba(0,0,0,0)"
FONT = {"size": 11.5}

# a place where tau moved: a line over the whole height, its words at the top
MOVE = {
    "type": "line",
    "layer": "below",
    "xref": "x",
    "yref": "paper",
    "y0": 0,
    "y1": 1,
    "line": {"width": 1, "dash": "1px,3px"},
    "label": {
        "textangle": 0,
        "textposition": "end",
        "xanchor": "left",
        "yanchor": "top",
        "padding": 3,
        "font": FONT,
    },
}


def confidence_figure() -> dict[str, Any]:
    """The skeleton {data, layout, config}; plot.js finds the traces by their names.

    From top to bottom: a row for the words where tau moved, tokens per forward as bars, and the
    confidence of every slot. All share x, the forward.
    """
    tau = {
        "name": "tau",
        "type": "scatter",
        "mode": "lines",
        "line": {"width": 1, "dash": "4px,3px"},
        "hoverinfo": "skip",
    }
    layout = {
        "height": 186,
        "autosize": False,
        "margin": {"l": 34, "r": 12, "t": 4, "b": 20, "pad": 0, "autoexpand": False},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": FONT,
        "showlegend": False,
        "hovermode": "closest",
        "hoverdistance": 12,
        "dragmode": False,
        "xaxis": _axis(anchor="y", showgrid=False),
        # a little more than 0 to 1, so that no dot is cut
        "yaxis": _axis(domain=[0, 0.68], range=[-0.04, 1.05], tickvals=[0, 0.5, 1]),
        "yaxis2": _axis(domain=[0.735, 0.885], showgrid=False, zeroline=True),
        "template": {"layout": {"shapedefaults": MOVE}},
    }
    return {
        "data": [
            # events are all that is wanted of hovering: the player shows its own card
            {"name": "tokens", "type": "bar", "yaxis": "y2", "hoverinfo": "none"},
            tau,
            _slots("rejected", symbol="circle-open", line={"width": 1.25}),
            _slots("accepted", symbol="circle", line={"width": 0}),
        ],
        "layout": layout,
        "config": {"displayModeBar": False, "doubleClick": False},
    }


def plotly_script() -> Path:
    """The plotly.js that the installed `plotly` package brings."""
    return Path(str(files("plotly"))) / "package_data" / "plotly.min.js"


def _slots(name: str, **marker: Any) -> dict[str, Any]:
    """Dots of as many px as plot.js puts between two slots."""
    return {
        "name": name,
        "type": "scatter",
        "mode": "markers",
        "marker": {"size": 5, "opacity": 1, **marker},
        "hoverinfo": "none",
    }


def _axis(**settings: Any) -> dict[str, Any]:
    """An axis that is only looked at: nothing to drag, and no redraw measures its numbers."""
    still = {"fixedrange": True, "automargin": False, "ticklabeloverflow": "allow"}
    return {**still, "ticks": "", "zeroline": False, **settings}
