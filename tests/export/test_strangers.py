"""Recordings from people nobody knows: ten thousand damaged ones, and none of them is a crash."""

from __future__ import annotations

import json
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from mars_core.config import DecodeConfig
from mars_core.export.recording import lines, read_recording
from mars_core.export.slots import slots_csv
from mars_core.trace import TraceError, dump_record
from tests.race.scripted import ONE_BY_ONE, SAID, SEVERAL, entrant, raced, raced_batches
from tests.ui.scripted import ScriptedEngine

RACE = [
    dump_record(record)
    for record in raced(entrant("AR", ONE_BY_ONE[:2]), entrant("MARS", SEVERAL[:2]), repeats=2)
]
BATCHES = [dump_record(record) for record in raced_batches(repeats=2)]
RUN = [dump_record(record) for record in ScriptedEngine(SEVERAL).generate(SAID, DecodeConfig())]

values = st.sampled_from(
    [None, -1, 0, 1e308, 2**70, float("nan"), True, "", "x", "\u0000", "</script>", [], {}, [[]]]
)
places = st.integers(0, 10**6)
kinds = st.sampled_from(["value", "drop", "copy", "swap", "byte", "cut"])
edits = st.lists(st.tuples(kinds, places, places, values), min_size=1, max_size=4)


def leaves(value, path=()):
    """The paths of everything inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inside in items:
        yield (*path, key)
        if isinstance(inside, (dict, list)):
            yield from leaves(inside, (*path, key))


def put(line, place, value):
    """The line with one of its fields replaced."""
    record = json.loads(line)
    paths = list(leaves(record))
    *path, last = paths[place % len(paths)]
    inside = record
    for key in path:
        inside = inside[key]
    inside[last] = value
    return json.dumps(record)


def damaged(rows, changes):
    rows = list(rows)
    data = None
    for kind, first, second, value in changes:
        if not rows:
            break
        i, j = first % len(rows), second % len(rows)
        match kind:
            case "value":
                with suppress(ValueError):  # a line that was damaged before
                    rows[i] = put(rows[i], second, value)
            case "drop":
                del rows[i]
            case "copy":
                rows.insert(j, rows[i])
            case "swap":
                rows[i], rows[j] = rows[j], rows[i]
            case "cut":
                rows[i] = rows[i][: second % (len(rows[i]) + 1)]
            case "byte":
                data = (first, second % 256)
    text = bytearray("".join(row + "\n" for row in rows).encode("utf-8", "surrogatepass"))
    if data and text:
        text[data[0] % len(text)] = data[1]
    return bytes(text)


@settings(max_examples=10_000)
@given(st.sampled_from([RACE, RUN, BATCHES]), edits)
def test_a_damaged_recording_is_read_or_refused_with_its_line(rows, changes):
    data = damaged(rows, changes)
    try:
        recording = read_recording(data)
    except TraceError as error:
        message = str(error)
        assert "\n" not in message
        assert "line" in message or "empty" in message
        return
    # what was taken can be shown, and is the same when it is read again
    text = lines(recording)
    assert lines(read_recording(text.encode())) == text
    assert slots_csv(recording).startswith("lane,")
