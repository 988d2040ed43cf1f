"""Recordings as pages, tables and animations."""

from __future__ import annotations

import csv
import io
import json

import pytest
from PIL import Image

from mars_core import cli
from mars_core.config import DecodeConfig
from mars_core.errors import MarsError
from mars_core.export.animation import animation
from mars_core.export.frames import MAX_FRAMES, Look
from mars_core.export.page import replay_page, shell
from mars_core.export.recording import lanes_of, lines, read_recording, shipped_recordings
from mars_core.export.slots import COLUMNS, slots_csv
from mars_core.trace import TraceError, dump_record
from tests.drafted import drafted_records
from tests.race.scripted import ONE_BY_ONE, SAID, SEVERAL, entrant, raced
from tests.ui.scripted import ScriptedEngine

RACE = "".join(
    dump_record(record) + "\n"
    for record in raced(entrant("AR", ONE_BY_ONE), entrant("MARS", SEVERAL), repeats=2)
)
WILD = [["<script>", "</script>"], ["=1+1", "\u2028", '"'], ["\x1b[2J"]]


def trace_of(passes, **options):
    records = ScriptedEngine(passes, **options).generate(SAID, DecodeConfig())
    return "".join(dump_record(record) + "\n" for record in records)


@pytest.mark.parametrize("text", [RACE, trace_of(SEVERAL), trace_of(WILD)])
def test_what_is_read_is_what_was_written(text):
    assert lines(read_recording(text.encode())) == text


def test_lanes():
    assert [name for name, _ in lanes_of(read_recording(RACE.encode()))] == ["AR", "MARS"]
    ((name, records),) = lanes_of(read_recording(trace_of(SEVERAL).encode()))
    assert (name, records[0].type) == ("", "header")


def test_a_page_holds_the_recording_and_nothing_else_of_it_can_run():
    text = trace_of(WILD)
    page = replay_page(text)
    assert page.count("<script") == shell().count("<script")
    inside = page.partition('id="recording">')[2].partition("</script>")[0]
    assert [json.loads(line) for line in inside.split("\n")[:-1]] == [
        json.loads(line) for line in text.split("\n")[:-1]
    ]


def test_a_page_needs_no_network_and_is_small():
    page = shell()
    addresses = [part.split('"')[0] for part in page.split("://")[1:]]
    assert addresses == ["www.w3.org/2000/svg"]  # a name, which nobody fetches
    assert len(page.encode()) < 300_000


def rows_of(text):
    return list(csv.DictReader(io.StringIO(slots_csv(read_recording(text.encode())))))


def test_a_table_has_every_slot():
    rows = rows_of(trace_of(SEVERAL, disagree=frozenset({(1, 2)})))
    assert tuple(rows[0]) == COLUMNS
    assert [(row["forward"], row["slot"], json.loads(row["token"])) for row in rows] == [
        ("1", "0", "Once"), ("1", "1", " upon"), ("1", "2", " a"),
        ("2", "0", " time"), ("2", "1", "."), ("3", "0", "<|im_end|>"),
    ]  # fmt: skip
    # slot 0 is AR's choice; hindsight tells that of slots 1 and 2
    own = [row["ar_token_id"] == row["token_id"] for row in rows]
    assert own == [True, True, False, True, True, True]
    assert {row["lane"] for row in rows_of(RACE)} == {"AR", "MARS"}


def test_a_table_tells_what_became_of_drafts():
    """A row per slot; where its token was fed as a draft, the verdict."""
    records = drafted_records()
    rows = rows_of("".join(dump_record(record) + "\n" for record in records))
    steps = [record for record in records if record.type == "step"]
    assert [row["group"] for row in rows] == [str(s.group) for s in steps for _ in s.slots]
    verdicts = [row["verdict"] for row in rows]
    fed = [draft.verdict for step in steps for draft in step.drafts]
    assert sorted(filter(None, verdicts)) == sorted(fed)
    assert all(not row["verdict"] for row in rows if row["slot"] == "0")
    plain = rows_of(trace_of(SEVERAL))
    assert {(row["group"], row["verdict"]) for row in plain} == {("", "")}


def test_a_spreadsheet_takes_no_token_for_a_formula():
    tokens = [row["token"] for row in rows_of(trace_of(WILD))]
    assert all(token.startswith('"') for token in tokens)
    assert '"=1+1"' in tokens


def png(width=4, height=3, colour=0):
    out = io.BytesIO()
    Image.new("RGB", (width, height), (colour, 0, 0)).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize("kind", ["webp", "gif"])
def test_an_animation(kind):
    data = animation([png(colour=c) for c in (0, 120, 250)], 100, kind)
    with Image.open(io.BytesIO(data)) as image:
        assert (image.format, image.n_frames, image.size) == (kind.upper(), 3, (4, 3))


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([], "1 to"),
        ([png()] * (MAX_FRAMES + 1), "1 to"),
        ([png(), png(5)], "one size"),
        ([b"no picture"], "no picture"),
        ([png()[:40]], "no picture"),
        ([png(4000, 2000)], "pixels"),
    ],
)
def test_what_is_no_animation(frames, words):
    with pytest.raises(MarsError, match=words):
        animation(frames, 100, "webp")


def test_the_command_writes_what_the_ending_says(tmp_path, capsys):
    source = tmp_path / "race.jsonl"
    source.write_text(RACE, encoding="utf-8")
    for name, made in (("a.html", replay_page(RACE)), ("b.jsonl", RACE)):
        assert cli.main(["export", str(source), str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_text(encoding="utf-8") == made
    assert cli.main(["export", str(source), str(tmp_path / "c.CSV")]) == 0
    assert (tmp_path / "c.CSV").read_text(encoding="utf-8").startswith("lane,")
    assert capsys.readouterr().out.splitlines() == [
        str(tmp_path / name) for name in ("a.html", "b.jsonl", "c.CSV")
    ]


@pytest.mark.parametrize(
    ("content", "out", "words"),
    [
        (RACE, "x.pdf", "name the file .html"),
        (RACE, "x", "name the file .html"),
        ("{}\n", "x.html", "line 1"),
        ("", "x.html", "empty"),
        (None, "x.html", "cannot read"),
    ],
)
def test_bad_input_is_one_line_on_stderr(content, out, words, tmp_path, capsys):
    source = tmp_path / "in.jsonl"
    if content is not None:
        source.write_text(content, encoding="utf-8")
    assert cli.main(["export", str(source), str(tmp_path / out)]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert not (tmp_path / out).exists()


def test_looks_that_cannot_be():
    for change in ({"width": 10}, {"scale": 0}, {"speed": 0}, {"rate": 100}):
        with pytest.raises(MarsError):
            Look(**change)


def test_what_is_shipped_can_be_read():
    for name, text in shipped_recordings().items():
        assert name
        assert lines(read_recording(text.encode())) == text


def test_a_bad_line_is_named():
    with pytest.raises(TraceError, match="line 2"):
        read_recording((RACE.splitlines()[0] + "\n{}\n").encode())
