"""Many rows at once: each is what it would be alone, whatever is beside it and is cached."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mars_core.cache import Session
from mars_core.config import Caching, DecodeConfig, SpecialTokens
from mars_core.control import LiveControl
from mars_core.decode import decode, decode_batch
from mars_core.errors import MarsError
from mars_core.events import Done, Extended, Idle, Joined, Left, Prefill, Step
from mars_core.reference import reference_decode
from mars_core.row import Request
from mars_core.text import StopStrings
from tests import scripted
from tests.test_decode import prompt_of
from tests.tiny import MASK_ID, tiny_llama, tiny_qwen2, tiny_qwen3, tiny_tokenizer

CONTEXT = 256
SPECIAL = SpecialTokens(MASK_ID, frozenset())
MODELS = {
    "llama": lambda: tiny_llama(seed=1, sharpen=6),
    "qwen2, one kv head": lambda: tiny_qwen2(seed=4, sharpen=6, tied=True, kv_heads=1),
    "qwen3": lambda: tiny_qwen3(seed=5, sharpen=6),
}
CURSOR, NONE = Caching("cursor"), Caching("none")


@cache
def model(name):
    return MODELS[name]()


def run(name, requests, caching=CURSOR, special=SPECIAL, places=None, **options):
    session = Session(model(name), CONTEXT, rows=places or len(requests))
    return list(decode_batch(session, requests, special, caching, **options))


def committed(events):
    """Row -> tokens of each of its forwards."""
    found = defaultdict(list)
    for event in events:
        if isinstance(event, Step):
            found[event.row].append([token.token for token in event.tokens])
    return found


def oracle(name, requests, caching=CURSOR, special=SPECIAL):
    cut = caching.cache_block if caching.strategy == "block" else None
    return {
        row: reference_decode(
            model(name), one.prompt, one.config, special, row=row, cache_block=cut
        )
        for row, one in enumerate(requests)
    }


def requests_of(rows, shared):
    return [
        Request(prompt_of(length, seed), replace(shared, tau=tau, block_size=size, **own))
        for length, seed, tau, size, own in rows
    ]


cachings = st.builds(
    Caching, st.sampled_from(["none", "block", "cursor"]), st.sampled_from([4, 8, 16, 32])
)
own_settings = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["one", "tau", "tau"]),
        "max_new_tokens": st.integers(1, 24),
        "use_last_mask": st.booleans(),
        "repetition_penalty": st.sampled_from([1.0, 1.0, 1.3]),
    }
)
rows_of_a_batch = st.lists(
    st.tuples(
        st.integers(1, 30),
        st.integers(0, 5),
        st.sampled_from([0.0, 0.3, 0.7, 0.95, 1.0]),
        st.integers(1, 8),
        own_settings,
    ),
    min_size=1,
    max_size=8,
)
shared_settings = st.builds(
    DecodeConfig,
    metric=st.sampled_from(["probability", "margin", "entropy"]),
    temperature=st.sampled_from([0.0, 0.0, 1.0]),
    seed=st.integers(0, 3),
)


@given(
    name=st.sampled_from(sorted(MODELS)),
    rows=rows_of_a_batch,
    shared=shared_settings,
    caching=cachings,
    places=st.integers(1, 8),
    eos=st.none() | st.integers(0, 200),
)
@settings(max_examples=150)
def test_every_row_equals_the_uncached_oracle(name, rows, shared, caching, places, eos):
    """Forward by forward: all strategies, fewer places than rows, ends everywhere."""
    requests = requests_of(rows, shared)
    special = SPECIAL
    if eos is not None:
        said = [t for steps in oracle(name, requests, caching).values() for s in steps for t in s]
        special = SpecialTokens(MASK_ID, frozenset({said[eos % len(said)]}))
    events = run(name, requests, caching, special, places)
    assert committed(events) == oracle(name, requests, caching, special)
    check_the_record(events, len(requests), min(places, len(requests)))


def check_the_record(events, rows, places):
    """What holds for the events of every run that ended by itself."""
    joined, left, done = {}, {}, {}
    taken = 0
    last = 0
    parts = defaultdict(int)
    for event in events:
        match event:
            case Joined(row, forward):
                assert forward == last + 1
                joined[row] = forward
                taken += 1
                assert taken <= places
            case Left(row, forward):
                assert row in done
                assert forward == last
                left[row] = forward
                taken -= 1
            case Step():
                assert event.row in joined
                assert event.row not in done
                assert last <= event.forward <= last + 1
                last = event.forward
                parts[event.row] += 1
            case Extended():
                assert event.forward == last + 1
                last = event.forward
                for row in event.rows:
                    assert row not in done
                    parts[row] += 1
            case Idle(row, forward):
                assert row not in done
                assert forward == last + 1
            case Done():
                done[event.row] = event
    assert set(joined) == set(done) == set(range(rows))
    assert len(left) >= rows - places
    for row, steps in committed(events).items():
        assert done[row].tokens == sum(map(len, steps))
        assert done[row].forwards == parts[row]


@given(
    name=st.sampled_from(sorted(MODELS)),
    rows=rows_of_a_batch,
    caching=st.sampled_from([CURSOR, NONE]),
    places=st.integers(1, 8),
    layout=st.sampled_from(["grouped", "linear"]),
    temperature=st.sampled_from([0.0, 1.0]),
)
@settings(max_examples=60)
def test_verified_rows_equal_their_own_runs(name, rows, caching, places, layout, temperature):
    """Forward by forward, drafts and verdicts too; beside rows of other modes."""
    shared = DecodeConfig(layout=layout, temperature=temperature)
    requests = requests_of(rows, shared)
    requests = [
        replace(one, config=replace(one.config, mode="verified", drafts=one.config.block_size))
        if number % 3
        else one
        for number, one in enumerate(requests)
    ]
    events = run(name, requests, caching, places=places)
    for row, request in enumerate(requests):
        if request.config.mode == "verified":
            steps = [e for e in events if isinstance(e, Step) and e.row == row]
            said = [token.token for step in steps for token in step.tokens]
            one = replace(request.config, mode="one")
            alone = reference_decode(model(name), request.prompt, one, SPECIAL, row=row)
            assert said == [token for tokens in alone for token in tokens]
            if temperature == 0:  # the noise of a row is its own
                own = [
                    e
                    for e in decode(
                        Session(model(name), CONTEXT), request.prompt, request.config, SPECIAL
                    )
                    if isinstance(e, Step)
                ]
                assert [
                    ([t.token for t in s.tokens], [(d.token, d.verdict) for d in s.drafts], s.group)
                    for s in steps
                ] == [
                    ([t.token for t in s.tokens], [(d.token, d.verdict) for d in s.drafts], s.group)
                    for s in own
                ]


@pytest.mark.parametrize("caching", [CURSOR, NONE, Caching("block", 4), Caching("block", 32)])
def test_hindsight_is_ars_own_choice_and_comes_once(caching):
    """Also where a block's end lies between a token and the forward that sees it."""
    requests = [
        Request(prompt_of(7 + row, row), DecodeConfig(tau=0.0, block_size=3, max_new_tokens=30))
        for row in range(4)
    ]
    events = run("llama", requests, caching)
    for row, request in enumerate(requests):
        steps = [e for e in events if isinstance(e, Step) and e.row == row]
        from_masks = {}
        for step in steps:
            for i, token in enumerate(step.tokens):
                if token.source == "slot":
                    from_masks[step.forward, token.slot] = step.position + i
        told = [(h.forward, h.slot) for step in steps for h in step.hindsight]
        assert len(told) == len(set(told))
        assert set(from_masks) - set(told) == {
            (steps[-1].forward, token.slot) for token in steps[-1].tokens if token.source == "slot"
        }
        ids = request.prompt + [t.token for step in steps for t in step.tokens]
        with torch.no_grad():
            lines = model("llama")(torch.tensor([ids])).logits[0]
        lines[:, MASK_ID] = -torch.inf
        for step in steps:
            for h in step.hindsight:
                line = lines[from_masks[h.forward, h.slot] - 1]
                assert h.ar_token == line.argmax()
                assert h.ar_prob == pytest.approx(float(line.softmax(-1).max()), abs=1e-9)


def test_a_place_is_taken_again_as_soon_as_it_is_free():
    """Continuous batching: nobody waits for the longest row."""
    limits = [2, 9, 3, 4, 1]
    requests = [
        Request([7 + i], DecodeConfig("one", max_new_tokens=n)) for i, n in enumerate(limits)
    ]
    events = run("llama", requests, places=2)
    assert {e.row: e.forward for e in events if isinstance(e, Joined)} == {
        0: 1, 1: 1, 2: 3, 3: 6, 4: 10,
    }  # fmt: skip
    assert {e.row: e.forward for e in events if isinstance(e, Left)} == {0: 2, 2: 5, 1: 9, 3: 9}
    assert not any(isinstance(e, Idle | Extended) for e in events)


def scripted_rows(limits, caching, places=8, wrong=lambda position: False, **settings):
    """Rows whose masks are right but where `wrong` says so; their prompts begin at position 0."""

    def predict(position, is_mask):
        return (position + 1 + (is_mask and wrong(position))) % 50, 50.0

    config = DecodeConfig(**settings)
    session = Session(scripted.ScriptedModel(predict), CONTEXT, rows=places)
    special = SpecialTokens(scripted.MASK_ID, frozenset())
    requests = [Request([0], replace(config, max_new_tokens=limit)) for limit in limits]
    return list(decode_batch(session, requests, special, caching))


def test_a_block_by_hand():
    """Two rows fill a block of 6 with B = 4; the second alone is held up by a wrong mask."""
    caching = Caching("block", 6)
    events = scripted_rows([12, 8], caching, tau=0.0, block_size=4)
    told = [
        e if isinstance(e, Idle | Extended) else (e.row, e.forward, e.fed, len(e.tokens))
        for e in events
        if isinstance(e, Idle | Extended | Step)
    ]
    assert told == [
        (0, 1, 4, 4), (1, 1, 4, 4),
        # five committed tokens are fed again, and one mask: the window ends with the block
        (0, 2, 6, 2), (1, 2, 6, 2),
        Extended((0, 1), 3, 6),
        (0, 4, 4, 4), (1, 4, 2, 2),
        (0, 5, 6, 2),
    ]  # fmt: skip
    assert [(e.row, e.tokens, e.forwards) for e in events if isinstance(e, Done)] == [
        (1, 8, 4), (0, 12, 5),
    ]  # fmt: skip


def test_who_has_filled_the_block_waits_and_the_next_prompt_too():
    """With a cursor neither does."""
    settings = {"tau": 0.9, "block_size": 4}
    rows = [Request([0], DecodeConfig(**settings, max_new_tokens=8))] * 1

    def predict(position, is_mask):
        return (position + 1) % 50, 50.0

    session = Session(scripted.ScriptedModel(predict), CONTEXT, rows=2)
    special = SpecialTokens(scripted.MASK_ID, frozenset())
    slow = Request([0], DecodeConfig("one", max_new_tokens=8))
    requests = [*rows, slow, Request([0], DecodeConfig(**settings, max_new_tokens=1))]
    blocked = list(decode_batch(session, requests, special, Caching("block", 4)))
    assert [e.forward for e in blocked if isinstance(e, Idle)] == [2, 3, 4]
    # the third prompt enters where both are at the end of a block and one has ended
    assert [(e.row, e.forward) for e in blocked if isinstance(e, Joined)] == [
        (0, 1),
        (1, 1),
        (2, 10),
    ]
    free = list(decode_batch(session, requests, special, CURSOR))
    assert not any(isinstance(e, Idle | Extended) for e in free)
    assert [(e.row, e.forward) for e in free if isinstance(e, Joined)] == [(0, 1), (1, 1), (2, 3)]


def test_the_cache_is_allocated_once_where_its_size_is_known():
    requests = [
        Request(prompt_of(5 + 9 * i, i), DecodeConfig(tau=0.5, max_new_tokens=20)) for i in range(5)
    ]
    session = Session(model("llama"), CONTEXT, rows=2, capacity=80)
    places = set()
    for event in decode_batch(session, requests, SPECIAL):
        if isinstance(event, Step):
            places.add(session._layers[0].keys.data_ptr())
    assert len(places) == 1
    assert session._layers[0].keys.shape[2] == session.capacity == 80


@given(cut=st.integers(0, 60), caching=cachings, places=st.integers(1, 4))
@settings(max_examples=40)
def test_closing_at_any_event_leaves_committed_tokens_only(cut, caching, places):
    requests = [
        Request(prompt_of(4 + row, row), DecodeConfig(tau=0.0, block_size=3, max_new_tokens=9))
        for row in range(4)
    ]
    session = Session(model("llama"), CONTEXT, rows=places)
    events = decode_batch(session, requests, SPECIAL, caching)
    said = defaultdict(list)
    for _, event in zip(range(cut + 1), events, strict=False):
        if isinstance(event, Step):
            said[event.row] += [token.token for token in event.tokens]
    events.close()
    texts = [request.prompt + said[row] for row, request in enumerate(requests)]
    whole = oracle("llama", requests, caching)
    for cached in session.tokens:  # steps of a forward are told one after the other
        assert any(cached == text[: len(cached)] for text in texts) or any(
            cached == (requests[row].prompt + [t for s in steps for t in s])[: len(cached)]
            for row, steps in whole.items()
        )
    (first, *_) = requests
    rest = decode(session, texts[0], replace(first.config, mode="one"), SPECIAL)
    rest_tokens = [t.token for e in rest if isinstance(e, Step) for t in e.tokens]
    alone = reference_decode(model("llama"), texts[0], replace(first.config, mode="one"), SPECIAL)
    assert rest_tokens == [t for tokens in alone for t in tokens]


def test_each_row_has_its_own_control():
    """Tau moved for one, another stopped; those beside them go on as they were."""
    config = DecodeConfig(tau=1.0, block_size=4, max_new_tokens=20)
    controls = [LiveControl(config) for _ in range(3)]
    requests = [Request(prompt_of(6, row), config, controls[row]) for row in range(3)]
    session = Session(model("llama"), CONTEXT, rows=3)
    events = []
    for event in decode_batch(session, requests, SPECIAL):
        events.append(event)
        if isinstance(event, Step) and (event.row, event.forward) == (2, 5):
            controls[0].set(tau=0.0)
            controls[1].stop()
    taus = [1.0] * 5 + [0.0] * 15
    wanted = [
        reference_decode(model("llama"), one.prompt, config, SPECIAL, taus if row == 0 else ())
        for row, one in enumerate(requests)
    ]
    found = committed(events)
    assert found[0] == wanted[0]
    assert max(map(len, found[0])) > 1
    assert found[1] == wanted[1][:5]
    assert found[2] == wanted[2]
    reasons = {e.row: e.reason for e in events if isinstance(e, Done)}
    assert reasons == {0: "length", 1: "stopped", 2: "length"}


def test_who_waits_can_be_stopped_too():
    """Without its prompt being computed for nothing."""
    control = LiveControl(DecodeConfig())
    config = DecodeConfig("one", max_new_tokens=5)
    requests = [Request([7, 8], config, control) for _ in range(4)]
    events = []
    for event in decode_batch(Session(model("llama"), CONTEXT, rows=2), requests, SPECIAL):
        events.append(event)
        if isinstance(event, Step) and event.forward == 2:
            control.stop()
    assert [(e.row, e.reason, e.tokens) for e in events if isinstance(e, Done)] == [
        (0, "stopped", 2), (1, "stopped", 2), (2, "stopped", 0), (3, "stopped", 0),
    ]  # fmt: skip
    assert [e.row for e in events if isinstance(e, Prefill)] == [0, 1]


@pytest.mark.parametrize("caching", [CURSOR, NONE, Caching("block", 8)])
def test_stop_strings_of_each_row(caching):
    tokenizer = tiny_tokenizer()
    text = tokenizer.encode("one two three. And more", add_special_tokens=False)

    def predict(position, is_mask):
        return text[(position - 2) % len(text)], 50.0

    session = Session(scripted.ScriptedModel(predict, vocab=400), CONTEXT, rows=2)
    special = SpecialTokens(scripted.MASK_ID, frozenset())
    stops = ("ee. A", "wo")
    requests = [
        Request([7, 8, 9], config := DecodeConfig(tau=0.5, stop=(stop,)), None,
                StopStrings(tokenizer, config.stop))
        for stop in stops
    ]  # fmt: skip
    events = list(decode_batch(session, requests, special, caching))
    said = {
        row: tokenizer.decode([t for tokens in steps for t in tokens])
        for row, steps in committed(events).items()
    }
    assert said == {0: "one two three. A", 1: "one two"}
    assert {e.reason for e in events if isinstance(e, Done)} == {"stop"}


def test_a_block_cache_cannot_verify():
    config = DecodeConfig("verified")
    with pytest.raises(MarsError, match="use cursor"):
        run("llama", [Request([7], config)], Caching("block"))


@pytest.mark.parametrize("bad", [{"strategy": "static"}, {"cache_block": 0}])
def test_a_caching_that_does_not_exist(bad):
    with pytest.raises(MarsError, match="cache"):
        Caching(**bad)


def test_no_prompts_give_no_events():
    assert run("llama", [], places=2) == []
