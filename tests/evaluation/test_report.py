"""Tables and figures of a README are what its results say."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from mars_core import cli
from mars_core.errors import MarsError
from mars_core.evaluation.bench import FORMAT, BenchResult, BenchRow, table
from mars_core.evaluation.forwards import Floor, ForwardCost
from mars_core.evaluation.measure import Timing
from mars_core.evaluation.report import figure, written
from mars_core.evaluation.settings import BenchConfig

ROOT = Path(cli.__file__).parents[2]
ABOUT = {
    "model": {"name": "small & fast", "weights": "none", "adapter": None},
    "dtype": "float32",
    "device": "cpu",
    "versions": {"torch": "2"},
    "commit": "abc",
    "cached_tokens": 128,
    "settings": json.loads(json.dumps(asdict(BenchConfig()))),
}


def row(way, up, batch=1):
    timing = Timing(10.0, 9.0, 11.0)
    speed_up = Timing(up, up - 0.1, up + 0.1)
    return BenchRow(
        "facts", batch, way, 4, timing, speed_up, 1.5, 20.0, None, 1.0, 10**6, None, 0.5, 0.0
    )


RESULT = BenchResult(
    FORMAT,
    ABOUT,
    Floor(10**6, 1e9),
    [ForwardCost(1, Timing(2.0, 1.0, 3.0))],
    [row("AR", 1.0), row("tau <1>", 2.0), row("AR", 0.5, batch=4)],
)


@pytest.fixture
def readme(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(asdict(RESULT)))
    path = tmp_path / "README.md"
    path.write_text("before\n<!-- bench: x.json -->\nold\n<!-- end -->\nafter\n")
    return path


def test_a_block_holds_its_table_and_the_rest_stays(readme):
    texts = written(readme)
    assert texts[readme] == (
        f"before\n<!-- bench: x.json -->\n```\n{table(RESULT)}\n```\n<!-- end -->\nafter\n"
    )
    assert texts[readme.parent / "x.svg"] == figure(RESULT)
    assert table(RESULT).splitlines()[5].split()[-2:] == ["1.00", "2.00"]  # x one row, x floor


def test_several_results_say_once_what_they_share(readme):
    longer = ABOUT | {"settings": ABOUT["settings"] | {"max_new_tokens": 999}}
    for name, about in (("y", ABOUT), ("z", longer)):
        more = replace(RESULT, about=about, floor=None, forwards=[], rows=[row("AR", 1.0, batch=8)])
        (readme.parent / f"{name}.json").write_text(json.dumps(asdict(more)))
    readme.write_text("<!-- bench: x.json y.json z.json y.json -->\n<!-- end -->\n")
    text = written(readme)[readme]
    assert text.count("torch 2") == 1
    assert text.count("8 at once") == 3
    assert [text.count(f"at most {n} tokens") for n in (128, 999)] == [2, 1]


@pytest.mark.parametrize(
    ("names", "name"),
    [
        (["x"], "x"),
        (["batch-1-cpu", "batch-16-cpu", "batch-4-cpu"], "batch-cpu"),
        (["one", "two"], "one"),
        (["a-1", "a-2"], "a"),
    ],
)
def test_a_block_has_one_figure(readme, names, name):
    for file in names:
        (readme.parent / f"{file}.json").write_text((readme.parent / "x.json").read_text())
    readme.write_text(f"<!-- bench: {' '.join(f'{n}.json' for n in names)} -->\n<!-- end -->\n")
    _, *figures = written(readme).items()
    assert figures == [(readme.parent / f"{name}.svg", figure(*[RESULT] * len(names)))]
    assert figure(RESULT, RESULT).count("<rect") == 2 * figure(RESULT).count("<rect")


def test_the_figure_is_drawn_to_scale_and_escaped(readme):
    text = figure(RESULT)
    tree = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    widths = [float(bar.get("width")) for bar in tree.iter(f"{space}rect")]
    assert widths[1] == pytest.approx(2 * widths[0], abs=0.2)
    assert widths[2] == pytest.approx(widths[0] / 2, abs=0.2)
    assert [bar.get("class") for bar in tree.iter(f"{space}rect")] == ["bar", "bar", "less"]
    words = "".join(tree.itertext())
    assert "tau <1>" in words
    assert "small & fast" in words
    assert "2.00x" in words
    assert "prefers-color-scheme: dark" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_the_command_writes_and_checks(readme, capsys):
    assert cli.main(["report", str(readme), "--check"]) == 1
    assert "differs" in capsys.readouterr().err
    assert "old" in readme.read_text()
    assert cli.main(["report", str(readme)]) == 0
    assert cli.main(["report", str(readme), "--check"]) == 0
    assert capsys.readouterr().err.count("written") == 2


def test_what_cannot_be_shown_is_one_line(readme, capsys):
    (readme.parent / "x.json").write_text('{"rows": 1}')
    with pytest.raises(MarsError, match=r"x\.json is not what"):
        written(readme)
    (readme.parent / "x.json").unlink()
    assert cli.main(["report", str(readme)]) == 2
    assert "cannot be read" in capsys.readouterr().err
    readme.write_text("nothing here")
    with pytest.raises(MarsError, match="shows no result"):
        written(readme)
    assert cli.main(["report", str(readme.parent / "none.md")]) == 2
    assert "none.md cannot be read: No such file" in capsys.readouterr().err


def test_a_card_shows_several_results_of_decoding_in_one_table(tmp_path):
    share = {"value": 0.5, "low": 0.25, "high": 0.75}
    row = {
        "set": "facts",
        "tau": 0.9,
        "n": 40,
        "looping": 0.0,
        "ar_looping": 0.0,
        "tokens_per_forward": {"value": 1.5, "low": 1.4, "high": 1.6},
        "agreement": share,
        "same": 0.9,
        "masks": [],
        "right": share,
        "gain": {"value": 0.0, "low": 0.0, "high": 0.0},
    }
    rows_of = {}
    for name in ("facts", "everyday"):
        rows = [row | {"set": name}, row | {"set": name, "tau": 1.0, "masks": [0.51, 0.3]}]
        rows_of[name] = rows
        result = {"about": {"settings": {"drafts": 2}}, "rows": rows, "answers": []}
        (tmp_path / f"{name}.json").write_text(json.dumps(result))
    # the same prompts once more: its AR is known already
    verified = row | {"tau": None, "agreement": None}
    result = {"about": {"settings": {"drafts": 4}}, "rows": [rows_of["facts"][1], verified]}
    (tmp_path / "more.json").write_text(json.dumps(result | {"answers": []}))
    card = tmp_path / "card.md"
    card.write_text("<!-- decoding: facts.json more.json everyday.json -->\n<!-- end -->\n")
    (path, text), *more = written(card).items()
    assert (path, more) == (card, [])
    lines = text.splitlines()
    assert [line.split(" | ")[:2] for line in lines if line.startswith("| facts")] == [
        ["| facts", "0.9"],
        ["| facts", "1"],
        ["| facts", "verified, 4 drafts"],
    ]
    assert "1.50 [1.40, 1.60] | 50.0 [25.0, 75.0] | 50.0 | 0.0 [0.0, 0.0] | 90 | 0 |" in lines[3]
    guesses = "masks that guess AR's continuation: 51, 30 %"
    assert lines[-4:-1] == ["", f"facts: {guesses}", f"everyday: {guesses}"]


@pytest.mark.parametrize("document", ["README.md", "assets/adapters/smollm2-135m-mars/README.md"])
def test_the_projects_own_has_not_drifted(document):
    for path, text in written(ROOT / document).items():
        assert path.read_text(encoding="utf-8") == text, f"run `mars report`: {path.name}"
