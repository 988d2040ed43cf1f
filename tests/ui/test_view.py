"""What the page says and sends, without a page."""

import json
from itertools import pairwise

import pytest

from mars_core.config import DecodeConfig
from mars_core.errors import MarsError
from mars_core.trace import parse_record
from mars_core.ui import view
from mars_core.ui.conversation import conversation
from mars_core.ui.presets import load_presets
from tests.ui.scripted import ScriptedEngine

FACTS = view.ModelFacts("smollm2-135m", False, None, "float32", "cpu", 134_515_008)
PAYLOAD = "<img src=x onerror=alert(1)><script>alert(1)</script>${alert(1)}{{7*7}}"


class Clock:
    """Advances by `tick` at every reading."""

    def __init__(self, tick: float) -> None:
        self.now = 0.0
        self.tick = tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


def records(passes=(("a",),) * 40):
    return list(ScriptedEngine(passes).generate(conversation("x"), DecodeConfig()))


@pytest.mark.parametrize("tick", [0.001, 0.03, 0.1, 5.0])
def test_growing_text_only_grows_and_ends_complete(tick):
    run = records()
    texts = list(view.growing_text(view.batched_lines(run, Clock(tick))))
    assert all(b.startswith(a) and b != a for a, b in pairwise(texts))
    assert all(text.endswith("\n") for text in texts)
    lines = texts[-1].splitlines()
    assert [parse_record(line) for line in lines] == run


def test_batches_go_out_at_most_ten_times_a_second():
    clock = Clock(0.03)
    batches = list(view.batched_lines(records(), clock))
    # the first at once, the last when the run is over
    assert len(batches) <= 2 + clock.now / view.BATCH_SECONDS
    assert len(batches[0]) == 1
    assert len(list(view.batched_lines(records(), Clock(0.0)))) == 2


def test_batches_read_no_further_than_they_must():
    seen = []

    def source():
        for record in records():
            seen.append(record)
            yield record

    next(view.batched_lines(source(), Clock(1.0)))
    assert len(seen) == 1


def split(text):
    opening, *lines = text.splitlines()
    return json.loads(opening), lines


def test_a_short_run_is_sent_whole_and_only_grows():
    transcript = view.Transcript(7)
    texts = [transcript.add([f"line {i}\n"]) for i in range(20)]
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    assert split(texts[-1]) == (
        {"type": "page", "view": "chat", "state": "trace", "run": 7, "at": 0},
        [f"line {i}" for i in range(20)],
    )
    assert transcript.whole() == texts[-1]


def test_of_a_long_run_the_end_is_sent_and_parts_overlap():
    transcript = view.Transcript(1)
    lines = [f"{i} {'x' * 1000}\n" for i in range(1000)]
    grew = 0
    before, end_before = "", 0
    for line in lines:
        text = transcript.add([line])
        opening, shown = split(text)
        assert len(text) <= view.Transcript.window + 100
        assert shown == [wanted.rstrip() for wanted in lines[opening["at"] :][: len(shown)]]
        assert opening["at"] < end_before or not before
        end_before = opening["at"] + len(shown)
        grew += text.startswith(before)
        before = text
    assert end_before == len(lines)
    # most updates only append, so most send only their suffix
    assert grew > 0.95 * len(lines)
    assert split(transcript.whole())[1] == [line.rstrip() for line in lines]


def test_lines_hold_no_tag_and_still_say_the_same():
    run = records([[PAYLOAD, "b"]])
    text = "".join(map(view.record_line, run))
    assert "<" not in text
    assert parse_record(text.splitlines()[2]).tokens[0].text == PAYLOAD
    assert json.loads(view.page_line("error", PAYLOAD))["text"] == PAYLOAD
    assert "<" not in view.page_line("error", PAYLOAD)


def test_model_line():
    assert view.model_line(FACTS) == "smollm2-135m · not MARS-trained · float32 · CPU"
    trained = FACTS._replace(trained=True, block_size=4)
    assert view.model_line(trained) == "smollm2-135m · MARS-trained, B = 4 · float32 · CPU"


def test_notices_say_what_a_visitor_must_know():
    untrained, small = view.notices(FACTS)
    assert "Not trained for MARS" in untrained
    assert "one token per forward" in untrained
    assert small == "A 135M model is small and often wrong."
    assert view.notices(FACTS._replace(trained=True, parameters=7 * 10**9)) == []


def test_tau_note_says_when_one_token_is_enforced():
    assert "one token per pass, enforced" in view.tau_note("tau", 1.0)
    assert "at least 0.35" in view.tau_note("tau", 0.35)
    assert "not used" in view.tau_note("one", 0.5)
    assert "Any confidence" in view.tau_note("tau", 0.0)


def test_html_is_escaped():
    assert "<img" not in view.head_html(PAYLOAD, PAYLOAD)


def test_a_waiting_visitor_is_told_their_place():
    assert "next" in view.waiting_text(1)
    assert "number 3 in line" in view.waiting_text(3)


def test_errors_read_as_sentences():
    assert view.sentence(MarsError("the prompt is empty")) == "The prompt is empty."
    assert view.sentence(MarsError("Why?")) == "Why?"


def test_presets_are_distinct_and_short():
    presets = load_presets()
    assert len(presets) == 12
    assert len({preset.label for preset in presets}) == len(presets)
    assert all(preset.prompt.strip() and len(preset.label) < 20 for preset in presets)
