"""The trace: round trips, unknown fields, and files from people nobody knows."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mars_core import trace
from mars_core.trace import TraceError, dump_record, parse_record, read_trace, write_trace

texts = st.text(max_size=20)
counts = st.integers(0, 10**6)
ordinals = st.integers(1, 10**6)
units = st.floats(0, 1)
millis = st.floats(0, 1e6)
modes = st.sampled_from(["one", "tau", "verified"])


def tuples(strategy, most=3):
    return st.lists(strategy, max_size=most).map(tuple)


def build(model, /, **fields):
    """Records of `model`: required fields always, optional ones sometimes left out."""
    required = {k: v for k, v in fields.items() if model.model_fields[k].is_required()}
    optional = {k: v for k, v in fields.items() if k not in required}
    return st.fixed_dictionaries(required, optional=optional).map(lambda d: model(**d))


messages = build(
    trace.Message, role=st.sampled_from(["system", "user", "assistant"]), content=texts
)
prompts = build(trace.Prompt, messages=tuples(messages), text=texts, tokens=counts)
infos = build(
    trace.ModelInfo,
    name=texts,
    source=texts,
    weights=texts,
    licence=texts | st.none(),
    adapter=texts | st.none(),
    architecture=texts,
    parameters=st.integers(0, 10**15),
    mask_token=texts | st.none(),
    mask_id=counts | st.none(),
    trained=st.booleans(),
    block_size=ordinals | st.none(),
    context_length=ordinals,
)
headers = build(
    trace.Header,
    type=st.just("header"),
    format=st.just("mars-trace"),
    version=st.just(1),
    created=texts,
    model=infos,
    draft_model=infos | st.none(),
    dtype=texts,
    dtype_reason=texts | st.none(),
    device=texts,
    versions=st.dictionaries(texts, texts, max_size=3),
    prompt=prompts | st.none(),
    settings=st.dictionaries(texts, texts | counts | units | st.none(), max_size=4),
    seed=st.integers(0, 2**53 - 1),
    costs=st.dictionaries(counts.map(str), millis, max_size=3) | st.none(),
)
alternatives = build(trace.AlternativeRecord, id=counts, text=texts, prob=units)
slots = build(
    trace.SlotRecord,
    slot=counts,
    id=counts,
    text=texts,
    prob=units,
    confidence=units,
    accepted=st.booleans(),
    alternatives=tuples(alternatives),
)
tokens = build(
    trace.TokenRecord,
    id=counts,
    text=texts,
    source=st.sampled_from(["ar", "slot", "draft"]),
    slot=counts,
    special=texts | st.none(),
)
addresses = build(trace.Address, forward=ordinals, slot=counts)
drafts = build(
    trace.DraftRecord,
    id=counts,
    text=texts,
    verdict=st.sampled_from(["kept", "rejected", "unreached"]),
    origin=addresses | st.none(),
    parent=counts | st.none(),
    prob=units | st.none(),
)
hindsights = build(
    trace.HindsightRecord,
    forward=ordinals,
    slot=counts,
    ar_token=counts,
    ar_text=texts,
    ar_prob=units,
)
records = st.one_of(
    build(
        trace.PrefillRecord,
        type=st.just("prefill"),
        row=counts,
        tokens=counts,
        reused=counts,
        ms=millis,
    ),
    build(
        trace.StepRecord,
        type=st.just("step"),
        row=counts,
        forward=ordinals,
        mode=modes,
        tau=units,
        fed=counts,
        position=counts,
        ms=millis,
        slots=tuples(slots),
        tokens=tuples(tokens),
        hindsight=tuples(hindsights),
        drafts=tuples(drafts),
        group=counts | st.none(),
    ),
    build(
        trace.ForwardRecord,
        type=st.just("forward"),
        role=st.sampled_from(["draft", "extend"]),
        rows=tuples(counts),
        forward=ordinals,
        fed=counts,
        ms=millis,
    ),
    build(
        trace.ControlRecord, type=st.just("control"), row=counts, forward=ordinals, mode=modes,
        tau=units,
    ),
    build(trace.JoinRecord, type=st.just("join"), row=counts, forward=ordinals, prompt=prompts),
    build(trace.IdleRecord, type=st.just("idle"), row=counts, forward=ordinals),
    build(trace.LeaveRecord, type=st.just("leave"), row=counts, forward=counts),
    build(
        trace.DoneRecord,
        type=st.just("done"),
        row=counts,
        reason=st.sampled_from(["eos", "stop", "length", "context", "stopped"]),
        text=texts,
        tail=texts,
        tokens=counts,
        forwards=counts,
        prefill_ms=millis,
        decode_ms=millis,
    ),
)  # fmt: skip
unknown = st.dictionaries(
    st.text("abcxyz", min_size=1, max_size=6).map("new_".__add__),
    st.none() | st.booleans() | counts | texts | st.lists(counts, max_size=3),
    max_size=3,
)


@given(headers | records)
def test_one_line_and_back(record):
    line = dump_record(record)
    assert "\n" not in line
    assert parse_record(line) == record
    assert dump_record(parse_record(line)) == line


@given(headers | records, unknown)
def test_unknown_fields_are_kept(record, more):
    fields = {**json.loads(dump_record(record)), **more}
    kept = json.loads(dump_record(parse_record(json.dumps(fields))))
    assert kept == fields


@given(headers, st.lists(records, max_size=4))
@settings(max_examples=50)
def test_file_round_trip(tmp_path_factory, header, rest):
    path = tmp_path_factory.mktemp("trace") / "run.jsonl"
    write_trace(path, [header, *rest])
    assert read_trace(path) == [header, *rest]
    assert read_trace(path.read_bytes()) == [header, *rest]


HEADER = {
    "type": "header",
    "format": "mars-trace",
    "version": 1,
    "created": "2026-01-01T00:00:00+00:00",
    "model": {
        "name": "m",
        "source": "s",
        "weights": "w",
        "architecture": "a",
        "parameters": 1,
        "trained": False,
        "context_length": 8,
    },
    "dtype": "float32",
    "device": "cpu",
    "versions": {},
    "settings": {},
    "seed": 0,
}
IDLE = {"type": "idle", "row": 0, "forward": 1}


def lines(*values):
    return b"\n".join(v if isinstance(v, bytes) else json.dumps(v).encode() for v in values)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"\xff\xfe", "line 1"),
        (b"PNG not json", "line 1"),
        (lines(IDLE), "line 1: the header"),
        (lines(HEADER, HEADER), "line 2: the header"),
        (lines(HEADER, IDLE, b"{"), "line 3"),
        (lines(HEADER, b"", IDLE), "line 2"),
        (lines(HEADER, b"[]"), "line 2"),
        (lines(HEADER, {"type": "surprise"}), "line 2"),
        (lines(HEADER, {"row": 0}), "line 2"),
        (lines(HEADER, {**IDLE, "row": -1}), "line 2 at idle.row"),
        (lines(HEADER, {**IDLE, "row": "0"}), "line 2 at idle.row"),
        (lines(HEADER, {**IDLE, "row": 1e400}), "line 2"),
        (lines(HEADER, {**IDLE, "row": 10**30}), "line 2"),
        (lines({**HEADER, "version": 2}), "line 1 at header.version"),
        (lines({**HEADER, "format": "other"}), "line 1 at header.format"),
        (lines(HEADER, b'{"type":"idle","row":0,"forward":1,"x":"\\ud800"}'), "line 2"),
        (lines(HEADER, b"[" * 100_000), "line 2"),
        (lines(HEADER, b'{"type":"control","row":0,"forward":1,"mode":"tau","tau":NaN}'), "line 2"),
    ],
)
def test_bad_files_name_the_line(data, words):
    with pytest.raises(TraceError) as caught:
        read_trace(data)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_limits(monkeypatch):
    monkeypatch.setattr(trace, "MAX_RECORDS", 3)
    assert len(read_trace(lines(HEADER, IDLE, IDLE))) == 3
    with pytest.raises(TraceError, match="line 4: a trace is at most"):
        read_trace(lines(HEADER, IDLE, IDLE, IDLE))
    monkeypatch.setattr(trace, "MAX_BYTES", 2000)
    with pytest.raises(TraceError, match="line 2: a trace is at most"):
        read_trace(lines(HEADER, {**IDLE, "padding": "x" * 3000}))


def test_missing_file_is_one_line(tmp_path):
    with pytest.raises(TraceError, match="cannot read the trace"):
        read_trace(tmp_path / "nothing.jsonl")
    with pytest.raises(TraceError, match="cannot read the trace"):
        read_trace(tmp_path / "null\0byte")


@given(st.data())
@settings(max_examples=300)
def test_damaged_lines_never_crash_the_reader(data):
    line = bytearray(dump_record(data.draw(headers)).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(line) - 1))
        line[at] = data.draw(st.integers(0, 255))
    with suppress(TraceError):  # anything else fails the test
        read_trace(bytes(line))
