"""`mars race` as a person or a script uses it."""

from __future__ import annotations

import pytest

from mars_core import cli
from mars_core.race.records import read_race
from mars_core.race.verdict import verdict_of
from tests.tiny import tiny_checkpoint, tiny_llama


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    model = tiny_llama(seed=5, sharpen=6)
    return str(tiny_checkpoint(tmp_path_factory.mktemp("race") / "tiny-model", model, mask=True))


def mars(*arguments):
    return cli.main(["race", *map(str, arguments)])


@pytest.fixture
def options(folder):
    return ("--model", folder, "--max-new-tokens", 12, "--tau", 0.3, "--repeats", 2)


def test_texts_and_table(options, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/bin/mars", "race", "hello there"])
    out = tmp_path / "race.jsonl"
    assert mars("hello", *options, "--out", out) == 0
    shown = capsys.readouterr()
    race = read_race(out)
    for lane in race.lanes:
        assert f"— {lane.info.name}: " in shown.out
    assert "speed-up" in shown.out
    assert verdict_of(race).lanes[1].says in shown.out
    assert "repeat 2, AR: " in shown.err
    assert race.header.command == "mars race 'hello there'"


def test_json_is_the_recording(options, tmp_path, capsys):
    assert mars("hello", *options, "--json", "--lanes", "ar", "mars", "second") == 0
    race = read_race(capsys.readouterr().out.encode())
    assert [lane.info.name for lane in race.lanes] == ["AR", "MARS, tau 0.3", "MARS, tau 0.7"]
    assert verdict_of(race).repeats == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["hello", "--lanes", "mars"], "first lane"),
        (["hello", "--drafts", "99"], "drafts is 99"),
        (["hello", "--out", "/no/such/folder/x.jsonl"], "folder does not exist"),
        (["", "--repeats", "1"], "empty"),
        (["hello", "--repeats", "0"], "repeats"),
    ],
)
def test_bad_input_is_one_line_on_stderr(arguments, words, folder, capsys):
    assert mars(*arguments, "--model", folder) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
