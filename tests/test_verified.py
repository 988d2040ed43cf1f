"""Verified decoding: whatever is drafted, the text is that of one token per forward."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mars_core.cache import Session
from mars_core.config import DecodeConfig, SpecialTokens
from mars_core.control import LiveControl
from mars_core.decode import decode
from mars_core.errors import MarsError
from mars_core.events import Step
from mars_core.reference import reference_decode
from mars_core.text import StopStrings
from tests import scripted
from tests.tiny import MASK_ID, tiny_llama, tiny_qwen2, tiny_qwen3, tiny_tokenizer

CONTEXT = 256
SPECIAL = SpecialTokens(MASK_ID, frozenset())
WORDS = (20, 60, 100)  # of a model that knows no others
COSTS = {1: 10.0, 4: 12.0, 9: 14.0, 25: 24.0}


def few_words(model):
    """The model with no token but WORDS likely, so that masks are often right by chance."""
    with torch.no_grad():
        head = model.lm_head.weight
        spoken = head[list(WORDS)].clone()
        head.zero_()
        head[list(WORDS)] = spoken - spoken.mean(0)
    return model


MODELS = {
    "llama": lambda: few_words(tiny_llama(seed=1, sharpen=20)),
    "qwen2": lambda: few_words(tiny_qwen2(seed=3, sharpen=20)),
    "qwen3": lambda: few_words(tiny_qwen3(seed=4, sharpen=20)),
}


@cache
def model(name):
    return MODELS[name]()


def run(name, prompt, config, special=SPECIAL, **options):
    return list(decode(Session(model(name), CONTEXT), prompt, config, special, **options))


def steps_of(events):
    return [event for event in events if isinstance(event, Step)]


def text_of(events):
    return [token.token for step in steps_of(events) for token in step.tokens]


def ar(name, prompt, config, special=SPECIAL):
    forwards = reference_decode(model(name), prompt, replace(config, mode="one"), special)
    return [token for forward in forwards for token in forward]


configs = st.builds(
    DecodeConfig,
    mode=st.just("verified"),
    drafts=st.integers(1, 8),
    layout=st.sampled_from(["grouped", "linear"]),
    max_new_tokens=st.integers(1, 40),
    temperature=st.sampled_from([0.0, 0.0, 0.7, 1.5]),
    top_p=st.sampled_from([1.0, 0.8]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.3]),
    no_repeat_ngram_size=st.sampled_from([0, 0, 2, 3]),
    metric=st.sampled_from(["probability", "margin", "entropy"]),
    seed=st.integers(0, 3),
)
prompts = st.lists(st.sampled_from([*WORDS, 7, 8, 9]), min_size=1, max_size=30)


@given(
    name=st.sampled_from(sorted(MODELS)),
    prompt=prompts,
    config=configs,
    eos=st.none() | st.integers(0, 40),
    costs=st.sampled_from([None, COSTS]),
)
@settings(max_examples=150)
def test_the_text_is_that_of_one_token_per_forward(name, prompt, config, eos, costs):
    """Both layouts, sampling and penalties too, and ends inside of drafts."""
    special = SPECIAL
    if eos is not None:
        said = ar(name, prompt, config)
        special = SpecialTokens(MASK_ID, frozenset({said[eos % len(said)]}))
    events = run(name, prompt, config, special, costs=costs)
    assert text_of(events) == ar(name, prompt, config, special)
    done = events[-1]
    assert done.tokens == len(text_of(events))
    assert done.forwards == len(steps_of(events))
    for step in steps_of(events):
        kept = [draft.token for draft in step.drafts if draft.verdict == "kept"]
        assert [token.token for token in step.tokens[: len(kept)]] == kept
        assert all(token.source == "draft" for token in step.tokens[: len(kept)])
        assert [token.source for token in step.tokens[len(kept) :]] in ([], ["ar"])


@pytest.mark.parametrize("layout", ["grouped", "linear"])
@pytest.mark.parametrize("drafts", range(1, 9))
def test_every_number_of_kept_drafts_occurs(drafts, layout):
    """So the comparison is worth something: none to all are kept."""
    config = DecodeConfig(
        mode="verified", drafts=drafts, layout=layout, max_new_tokens=200, alternatives=0
    )
    found = set()
    for every in range(2, 14):  # so often a mask errs
        steps = steps_of(scripted_run(partial(int.__rmod__, every), config))
        assert text_of(steps) == [position % 50 for position in range(3, 203)]
        assert all(len(step.drafts) <= drafts for step in steps)
        found |= {step.group for step in steps}
        fed = {len(step.drafts) for step in steps}
        assert max(fed) == drafts
    assert found == set(range(drafts + 1))


def scripted_run(right, config, **options):
    """Tokens count positions; a mask at position p is right where right(p) says so."""

    def predict(position, is_mask):
        wrong = is_mask and not right(position)
        return (position + 1 + wrong) % 50, 50.0

    special = options.pop("special", SpecialTokens(scripted.MASK_ID, frozenset()))
    session = Session(scripted.ScriptedModel(predict), CONTEXT)
    return list(decode(session, [0, 1, 2], config, special, **options))


def test_a_forward_by_hand():
    """Drafts of the group behind what was kept; the verdicts; rows fed."""
    config = DecodeConfig(mode="verified", drafts=2, max_new_tokens=9)
    first, second, third, *_ = steps_of(scripted_run(lambda p: p != 7, config))
    # prompt 0 1 2, at position 2 AR says 3; masks at 3 and 4 say 4 and 5
    assert (first.fed, first.drafts, first.group) == (3, (), 0)
    assert [token.token for token in first.tokens] == [3]
    assert [(s.slot, s.token, s.accepted) for s in first.slots] == [
        (0, 3, True), (1, 4, False), (2, 5, False),
    ]  # fmt: skip
    # 3, drafts 4 5, and masks behind 3 (at 4 5), behind 4 (5 6), behind 5 (6 7: that one errs)
    assert (second.fed, second.group) == (9, 2)
    assert [(d.token, d.origin, d.verdict) for d in second.drafts] == [
        (4, (1, 1), "kept"), (5, (1, 2), "kept"),
    ]  # fmt: skip
    assert [(t.token, t.source, t.slot) for t in second.tokens] == [
        (4, "draft", 0), (5, "draft", 1), (6, "ar", 0),
    ]  # fmt: skip
    assert [slot.token for slot in second.slots] == [6, 7, 9]
    assert [(d.token, d.origin, d.verdict) for d in third.drafts] == [
        (7, (2, 1), "kept"), (9, (2, 2), "rejected"),
    ]  # fmt: skip
    assert [token.token for token in third.tokens] == [7, 8]
    assert third.group == 1


def test_linear_starts_anew_where_a_draft_is_wrong():
    config = DecodeConfig(mode="verified", drafts=2, layout="linear", max_new_tokens=12)
    steps = steps_of(scripted_run(lambda p: p != 3, config))
    assert [(len(step.drafts), step.fed, step.group) for step in steps[:4]] == [
        (0, 3, 0), (2, 5, 0), (0, 3, 0), (2, 5, 2),
    ]  # fmt: skip
    assert [draft.verdict for draft in steps[1].drafts] == ["rejected", "unreached"]


def test_nothing_follows_an_end_inside_of_drafts():
    config = DecodeConfig(mode="verified", drafts=4)
    special = SpecialTokens(scripted.MASK_ID, frozenset({5}))
    events = scripted_run(bool, config, special=special)
    last = steps_of(events)[-1]
    assert text_of(events) == [3, 4, 5]
    assert events[-1].reason == "eos"
    assert [draft.verdict for draft in last.drafts] == ["kept", "kept", "unreached", "unreached"]
    assert not any(slot.accepted for slot in last.slots)


def test_a_stop_string_inside_of_drafts():
    tokenizer = tiny_tokenizer()
    text = tokenizer.encode("one two three. And more", add_special_tokens=False)
    session = Session(
        scripted.ScriptedModel(lambda p, _: (text[(p - 2) % len(text)], 50.0), vocab=400), CONTEXT
    )
    config = DecodeConfig(mode="verified", drafts=4, stop=("ee. A",))
    stop = StopStrings(tokenizer, config.stop)
    special = SpecialTokens(scripted.MASK_ID, frozenset())
    events = list(decode(session, [7, 8, 9], config, special, stop=stop))
    assert tokenizer.decode(text_of(events)) == "one two three. A"
    assert events[-1].reason == "stop"


@pytest.mark.parametrize("limit", range(1, 12))
def test_no_row_is_fed_for_which_there_is_no_room(limit):
    """Neither behind the last token wanted, nor behind the context's end."""
    config = DecodeConfig(mode="verified", drafts=3, max_new_tokens=limit)
    events = scripted_run(bool, config)
    assert len(text_of(events)) == limit
    steps = steps_of(events)
    produced = 0
    for step in steps:
        assert len(step.drafts) + 1 <= limit - produced
        produced += len(step.tokens)
        assert len(step.slots) - 1 <= max(0, limit - produced - 1)
    session = Session(model("llama"), 3 + limit)
    config = replace(config, max_new_tokens=100)
    events = list(decode(session, [7, 8, 9], config, SPECIAL))
    assert (len(text_of(events)), events[-1].reason) == (limit, "context")


@given(name=st.sampled_from(sorted(MODELS)), prompt=prompts, config=configs, cut=st.integers(0, 9))
@settings(max_examples=40)
def test_closing_at_any_event_leaves_a_cache_that_continues_exactly(name, prompt, config, cut):
    session = Session(model(name), CONTEXT)
    events = decode(session, prompt, config, SPECIAL)
    said = []
    for _, event in zip(range(cut + 1), events, strict=False):
        if isinstance(event, Step):
            said += [token.token for token in event.tokens]
        assert session.tokens[0] == (prompt + said)[: len(session.tokens[0])]
    events.close()
    if left := config.max_new_tokens - len(said):
        rest = list(decode(session, prompt + said, replace(config, max_new_tokens=left), SPECIAL))
        assert said + text_of(rest) == ar(name, prompt, config)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", MODELS)
def test_switched_on_while_running_it_is_exact_from_there(name, temperature):
    """What tau left over are the first drafts; switched off, masks are read by tau again."""
    config = DecodeConfig(tau=0.0, drafts=3, max_new_tokens=60, temperature=temperature)
    control = LiveControl(config)
    prompt = [*WORDS, 7]
    steps, switched = [], []
    for event in decode(Session(model(name), CONTEXT), prompt, config, SPECIAL, control):
        if isinstance(event, Step):
            steps.append(event)
            modes = {3: ("verified", 0.0), 12: ("tau", 0.99), 15: ("verified", 0.99)}
            if event.forward in modes:
                mode, tau = modes[event.forward]
                control.set(mode=mode, tau=tau)
                switched.append(len(text_of(steps)))
    said = text_of(steps)
    assert [step.mode for step in steps[:16]] == [
        *["tau"] * 3, *["verified"] * 9, *["tau"] * 3, "verified",
    ]  # fmt: skip
    assert any(step.drafts for step in steps[15:18])
    alone = ar(name, prompt + said[: switched[0]], config)
    verified = said[switched[0] : switched[1]]
    assert verified == alone[: len(verified)]


def test_verified_needs_a_mask_token():
    with pytest.raises(MarsError, match="no mask token"):
        run("llama", [7], DecodeConfig(mode="verified"), SpecialTokens(None, frozenset()))


def test_drafts_nobody_keeps_are_not_fed_where_rows_cost_much():
    """And all of them where AR keeps them and rows are cheap; exact either way."""
    config = DecodeConfig(mode="verified", drafts=4, max_new_tokens=120)
    dear = {1: 10.0, 25: 200.0}
    useless = steps_of(scripted_run(lambda p: False, config, costs=dear))
    assert all(step.fed == 1 for step in useless[-60:])
    cheap = {1: 10.0, 25: 10.5}
    useful = steps_of(scripted_run(bool, config, costs=cheap))
    assert all(len(step.drafts) == 4 for step in useful[5:-3])
    unweighed = replace(config, adaptive=False)
    fixed = steps_of(scripted_run(lambda p: False, unweighed, costs=dear))
    assert all(len(step.drafts) == 4 for step in fixed[1:-5])
    assert text_of(useless) == text_of(useful) == text_of(fixed)
