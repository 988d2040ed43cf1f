"""The trace of a batch: what it says of rows, time and places; the command that prints it."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count

import pytest

from mars_core import cli, trace
from mars_core.batch import check_room, entries_of, free_bytes
from mars_core.batch_figures import batch_figures
from mars_core.cache import Session, entry_bytes
from mars_core.config import Caching, DecodeConfig
from mars_core.control import LiveControl
from mars_core.engine import Engine
from mars_core.errors import MarsError
from mars_core.models.load import load
from mars_core.row import Request
from tests.tiny import tiny_checkpoint, tiny_llama

ASKED = ["Tell me of the sea.", "Why?", "One, two and then the rest", "the other", "and on"]
CONVERSATIONS = [[trace.Message(role="user", content=text)] for text in ASKED]
CONFIG = DecodeConfig(tau=0.3, max_new_tokens=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    model = tiny_llama(seed=5, sharpen=6)
    return str(tiny_checkpoint(tmp_path_factory.mktemp("batch") / "tiny-model", model, mask=True))


@pytest.fixture(scope="module")
def loaded(folder):
    return load(folder, device="cpu", dtype="float64")


def batch(loaded, config=CONFIG, rows=2, caching=Caching(), clock=None, **options):  # noqa: B008
    engine = Engine(loaded, **({"clock": clock} if clock else {}))
    return list(engine.generate_batch(CONVERSATIONS, config, rows, caching, **options))


def of(records, kind, row=None):
    return [r for r in records if isinstance(r, kind) and row in (None, getattr(r, "row", None))]


@pytest.mark.parametrize("caching", [Caching(), Caching("none"), Caching("block", 4)])
@pytest.mark.parametrize("mode", ["one", "tau"])
def test_every_row_is_the_record_of_its_own_run(loaded, mode, caching):
    config = DecodeConfig(mode=mode, tau=0.3, max_new_tokens=12)
    records = batch(loaded, config, caching=caching)
    for row, messages in enumerate(CONVERSATIONS):
        *_, alone = Engine(loaded).generate(messages, config)
        (done,) = of(records, trace.DoneRecord, row)
        assert (done.text, done.tokens, done.reason) == (alone.text, alone.tokens, alone.reason)
        (join,) = of(records, trace.JoinRecord, row)
        assert join.prompt.messages[0].content == ASKED[row]
        steps = of(records, trace.StepRecord, row)
        assert "".join(t.text for s in steps for t in s.tokens) + done.tail == done.text


def test_the_header_tells_what_was_cached_and_how_large_it_is(loaded):
    (header, *_) = batch(loaded, rows=3, caching=Caching("block", 8))
    assert header.prompt is None
    said = header.settings
    assert (said["rows"], said["cache"], said["cache_block"], said["tau"]) == (3, "block", 8, 0.3)
    # two layers of two heads of eight, keys and values, in float64
    assert said["cache_bytes"] == 3 * said["cache_tokens"] * 2 * 2 * 2 * 8 * 8
    assert header.costs is None


@pytest.mark.parametrize(
    "config", [DecodeConfig(adaptive_masks=True), DecodeConfig(mode="verified")]
)
def test_the_header_tells_what_forwards_cost_where_that_decides(loaded, config):
    (header, *_) = batch(loaded, config, rows=3)
    assert {name.split("x")[0] for name in header.costs} == {"1", "3"}
    assert all(ms >= 0 for ms in header.costs.values())


def test_a_trace_comes_back_as_it_was(loaded, tmp_path):
    records = batch(loaded, replace(CONFIG, tau=0.7), caching=Caching("block", 4))
    trace.write_trace(tmp_path / "batch.jsonl", records)
    assert trace.read_trace(tmp_path / "batch.jsonl") == records
    kinds = {record.type for record in records}
    assert kinds >= {"join", "leave", "idle", "forward", "step", "prefill", "done"}


def test_rows_share_the_time_of_a_forward_and_all_time_is_somewhere(loaded):
    """The clock advances a millisecond whenever it is read: so do events, in the figures."""
    ticks = count()
    records = batch(loaded, caching=Caching("block", 4), clock=lambda: next(ticks) / 1000)
    forwards = {}
    for record in records:
        if isinstance(record, trace.StepRecord):
            assert forwards.setdefault(record.forward, record.ms) == record.ms
        if isinstance(record, trace.ForwardRecord):
            assert record.forward not in forwards
            forwards[record.forward] = record.ms
    assert sorted(forwards) == list(range(1, len(forwards) + 1))
    figures = batch_figures(records)
    assert figures.decode_ms == pytest.approx(sum(forwards.values()))
    for done in of(records, trace.DoneRecord):
        own = [s.ms for s in of(records, trace.StepRecord, done.row)]
        own += [f.ms for f in of(records, trace.ForwardRecord) if done.row in f.rows]
        assert done.decode_ms == pytest.approx(sum(own))
        assert done.forwards == len(own)


def test_figures(loaded):
    config = replace(CONFIG, tau=0.7)
    records = batch(loaded, config, rows=2)
    figures = batch_figures(records)
    assert (figures.rows, figures.places) == (5, 2)
    assert figures.tokens == sum(done.tokens for done in of(records, trace.DoneRecord))
    assert figures.per_forward > 1
    assert figures.idle == 0
    blocked = batch_figures(batch(loaded, config, rows=2, caching=Caching("block", 4)))
    assert blocked.tokens == figures.tokens
    assert blocked.idle > 0
    assert blocked.forwards > figures.forwards
    assert "5 prompts, 2 at once" in blocked.line


def test_figures_of_something_else(loaded):
    with pytest.raises(MarsError, match="not one of a batch"):
        batch_figures(list(Engine(loaded).generate(CONVERSATIONS[0], CONFIG)))


def test_each_conversation_has_its_own_control(loaded):
    controls = [LiveControl(CONFIG) for _ in CONVERSATIONS]
    controls[1].set(tau=1.0)
    records = batch(loaded, controls=controls)
    assert {step.tau for step in of(records, trace.StepRecord, 1)} == {1.0}
    assert all(len(step.tokens) == 1 for step in of(records, trace.StepRecord, 1))
    assert {step.tau for step in of(records, trace.StepRecord, 0)} == {0.3}


def test_a_cache_that_does_not_fit_is_refused_with_what_would():
    with pytest.raises(MarsError, match=r"takes 1\.0 GB, and 0\.4 GB are free: 4 rows of 1000"):
        check_room(rows=10, tokens=1000, entry=100_000, free=500_000_000)
    with pytest.raises(MarsError, match="one row of 80 tokens would fit"):
        check_room(rows=10, tokens=1000, entry=100_000, free=10_000_000)
    check_room(rows=4, tokens=1000, entry=100_000, free=500_000_000)


def test_a_batch_that_does_not_fit_is_refused_before_it_begins(loaded, monkeypatch):
    monkeypatch.setattr("mars_core.batch.free_bytes", lambda device: 30_000)
    with pytest.raises(MarsError, match="would fit"):
        Engine(loaded).generate_batch(CONVERSATIONS, CONFIG, 2)


def test_the_size_that_is_stated_is_the_size_that_is_allocated(loaded):
    requests = [Request([7] * 20, CONFIG)]
    tokens = entries_of(requests[0], Caching(), 256)
    session = Session(loaded.model, 256, rows=3, capacity=tokens)
    session.prefill([[7] * 20])
    held = sum(
        buffer.numel() * buffer.element_size()
        for layer in session._layers
        for buffer in (layer.keys, layer.values)
    )
    assert held == session.bytes == 3 * tokens * entry_bytes(loaded.model)
    assert free_bytes(loaded.device) > held


def mars(*arguments):
    return cli.main([str(a) for a in arguments])


def test_the_command_prints_an_answer_per_line(folder, tmp_path, capsys):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join(ASKED))
    given = ("batch", prompts, "--model", folder, "--max-new-tokens", 8, "--dtype", "float64")
    assert mars(*given, "--rows", 2) == 0
    printed = capsys.readouterr()
    rows = [json.loads(line) for line in printed.out.splitlines()]
    assert sorted(row["row"] for row in rows) == list(range(5))
    assert {row["prompt"] for row in rows} == set(ASKED)
    assert "cursor cache, 2 rows" in printed.err
    assert "5 prompts, 2 at once" in printed.err
    assert mars(*given, "--rows", 2, "--cache", "block", "--cache-block", 4, "--json") == 0
    records = [trace.parse_record(line) for line in capsys.readouterr().out.splitlines()]
    assert {r.row: r.text for r in of(records, trace.DoneRecord)} == {
        row["row"]: row["answer"] for row in rows
    }
    assert mars(*given, "--limit", 3) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--rows", 0], "rows is 0"),
        (["--cache-block", 0], "cache block is 0"),
        (["--limit", 0], "limit is 0"),
        (["--mode", "verified", "--cache", "block"], "use cursor"),
    ],
)
def test_bad_input_is_one_line(folder, tmp_path, capsys, given, words):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one\ntwo")
    assert mars("batch", prompts, "--model", folder, *given) == 2
    said = capsys.readouterr().err.splitlines()
    assert words in said[-1]


def test_a_missing_file_is_one_line(folder, capsys):
    assert mars("batch", "nowhere.txt", "--model", folder) == 2
    assert "nowhere.txt cannot be read" in capsys.readouterr().err
