"""The confidence plot's skeleton, checked by Plotly's own schema."""

import json
import re
import subprocess
import sys

import plotly.graph_objects as go
import pytest

from mars_core.paths import assets_dir
from mars_core.ui.plots import confidence_figure, plotly_script


def test_plotly_knows_every_attribute():
    figure = confidence_figure()
    # strict: an unknown attribute or a value out of range raises
    go.Figure(data=figure["data"], layout=figure["layout"], skip_invalid=False)


def test_a_misspelt_attribute_would_fail():
    figure = confidence_figure()
    figure["layout"]["yaxis2"]["zerolin"] = True
    with pytest.raises(ValueError, match="zerolin"):
        go.Figure(data=figure["data"], layout=figure["layout"], skip_invalid=False)


def test_it_is_plain_data_and_a_new_one_each_time():
    figure = confidence_figure()
    assert json.loads(json.dumps(figure)) == figure
    figure["layout"]["xaxis"]["range"] = [0, 1]
    assert "range" not in confidence_figure()["layout"]["xaxis"]


def test_every_trace_is_filled_by_the_player_and_every_colour_comes_from_its_sheet():
    figure = confidence_figure()
    script = (assets_dir() / "player" / "plot.js").read_text(encoding="utf-8")
    block = re.search(r"const contents = \{(.*?)^  \};", script, re.DOTALL | re.MULTILINE)[1]
    names = [trace["name"] for trace in figure["data"]]
    assert sorted(re.findall(r"^    (\w+):", block, re.MULTILINE)) == sorted(names)
    colours = re.findall(r"#[0-9a-f]{3,8}\b|rgba?\([^)]*\)", json.dumps(figure))
    assert set(colours) == {"rgba(0,0,0,0)"}


def test_the_parts_do_not_overlap_and_leave_a_row_for_words():
    layout = confidence_figure()["layout"]
    inner = layout["height"] - layout["margin"]["t"] - layout["margin"]["b"]
    (low, high), (floor, top) = layout["yaxis"]["domain"], layout["yaxis2"]["domain"]
    assert low == 0
    assert (floor - high) * inner >= 6
    words = layout["template"]["layout"]["shapedefaults"]["label"]
    assert (1 - top) * inner >= words["font"]["size"] + words["padding"]


def test_the_script_is_the_one_plotly_ships():
    assert plotly_script().read_bytes()[:100].startswith(b"/**\n* plotly.js v")


def test_it_is_light_to_import():
    code = (
        "import sys, mars_core.ui.plots; "
        "heavy = {'torch', 'transformers', 'gradio', 'plotly'} & set(sys.modules); "
        "sys.exit(' '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
