"""The fast loop against the slow oracle, token for token."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mars_core.cache import Session
from mars_core.config import DecodeConfig, SpecialTokens
from mars_core.control import LiveControl, LiveSettings
from mars_core.decode import decode, decode_batch
from mars_core.errors import MarsError
from mars_core.events import ControlChanged, Done, Prefill, Step
from mars_core.reference import reference_decode
from mars_core.row import Request
from mars_core.text import StopStrings
from tests import scripted
from tests.tiny import MASK_ID, VOCAB, tiny_llama, tiny_qwen2, tiny_tokenizer

CONTEXT = 256
SPECIAL = SpecialTokens(MASK_ID, frozenset())
MODELS = {
    "llama, untied": lambda: tiny_llama(seed=1, sharpen=6),
    "llama, tied, full heads": lambda: tiny_llama(seed=2, sharpen=6, tied=True, kv_heads=4),
    "qwen2, untied": lambda: tiny_qwen2(seed=3, sharpen=6),
    "qwen2, tied, one kv head": lambda: tiny_qwen2(seed=4, sharpen=6, tied=True, kv_heads=1),
}


@cache
def model(name):
    return MODELS[name]()


def prompt_of(length, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, VOCAB, (length,), generator=generator).tolist()


def run(name, prompt, config, special=SPECIAL, **kwargs):
    session = Session(model(name), CONTEXT)
    return list(decode(session, prompt, config, special, **kwargs))


def steps_of(events):
    return [event for event in events if isinstance(event, Step)]


def committed(events):
    return [[token.token for token in step.tokens] for step in steps_of(events)]


def flat(forwards):
    return [token for forward in forwards for token in forward]


configs = st.builds(
    DecodeConfig,
    mode=st.sampled_from(["one", "tau"]),
    tau=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    block_size=st.integers(1, 8),
    use_last_mask=st.booleans(),
    metric=st.sampled_from(["probability", "margin", "entropy"]),
    max_new_tokens=st.integers(1, 40),
    temperature=st.sampled_from([0.0, 0.0, 0.7, 1.5]),
    top_p=st.sampled_from([1.0, 0.8]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.3]),
    no_repeat_ngram_size=st.sampled_from([0, 0, 1, 2, 3]),
    seed=st.integers(0, 3),
)


@given(
    name=st.sampled_from(sorted(MODELS)),
    length=st.integers(1, 40),
    seed=st.integers(0, 5),
    config=configs,
    eos=st.integers(0, 30) | st.none(),
)
@settings(max_examples=100)
def test_equals_the_uncached_oracle(name, length, seed, config, eos):
    prompt = prompt_of(length, seed)
    special = SPECIAL
    if eos is not None:  # a token that really occurs, so that runs end inside a block
        tokens = flat(reference_decode(model(name), prompt, config, SPECIAL))
        special = SpecialTokens(MASK_ID, frozenset({tokens[eos % len(tokens)]}))
    events = run(name, prompt, config, special)
    assert committed(events) == reference_decode(model(name), prompt, config, special)
    done = events[-1]
    assert done.tokens == len(flat(committed(events)))
    assert done.forwards == len(steps_of(events))
    assert done.reason == ("eos" if special.eos_ids else "length")


class Taus:
    """A control that gives another tau at every reading."""

    def __init__(self, taus):
        self.taus = iter(taus)

    def read(self):
        return LiveSettings("tau", next(self.taus))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("use_last_mask", [False, True])
@pytest.mark.parametrize("block_size", range(1, 9))
def test_every_acceptance_count_occurs(name, block_size, use_last_mask):
    """The comparison with the oracle is worth something: each count 1..B (B + 1) is reached."""
    wanted = set(range(1, block_size + use_last_mask + 1))
    config = DecodeConfig(block_size=block_size, use_last_mask=use_last_mask, max_new_tokens=40)
    found = set()
    for seed in range(20):
        taus = [(0.0, 0.3, 0.5, 0.7)[(i + seed) % 4] for i in range(41)]
        prompt = prompt_of(5, seed)
        forwards = committed(run(name, prompt, config, control=Taus(taus)))
        assert forwards == reference_decode(model(name), prompt, config, SPECIAL, taus)
        found |= {len(forward) for forward in forwards}
        if found == wanted:
            return
    pytest.fail(f"only {found} of {wanted} occurred")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("penalty", "ngram"), [(1.0, 0), (1.3, 0), (1.0, 1), (1.0, 2), (1.1, 3)])
def test_one_token_mode_is_greedy_generate(name, penalty, ngram):
    prompt = prompt_of(17)
    config = DecodeConfig(
        mode="one",
        max_new_tokens=48,
        repetition_penalty=penalty,
        no_repeat_ngram_size=ngram,
    )
    ours = flat(committed(run(name, prompt, config)))
    theirs = (
        model(name)
        .generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt)),
            do_sample=False,
            max_new_tokens=48,
            repetition_penalty=penalty,
            no_repeat_ngram_size=ngram,
            suppress_tokens=[MASK_ID],
            eos_token_id=None,
            pad_token_id=0,
        )[0, len(prompt) :]
        .tolist()
    )
    assert ours == theirs


@pytest.mark.parametrize("mode", ["one", "tau"])
def test_attention_without_sdpa_takes_an_additive_mask(mode):
    eager = tiny_llama(seed=1, sharpen=6)
    eager.set_attn_implementation("eager")
    config = DecodeConfig(mode=mode, tau=0.3, max_new_tokens=30)
    prompt = prompt_of(11)
    ours = committed(list(decode(Session(eager, CONTEXT), prompt, config, SPECIAL)))
    assert ours == reference_decode(eager, prompt, config, SPECIAL)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_tau_one_is_one_token_mode(name, temperature):
    config = DecodeConfig(tau=1.0, max_new_tokens=40, temperature=temperature)
    masked = committed(run(name, prompt_of(9), config))
    assert masked == committed(run(name, prompt_of(9), replace(config, mode="one")))
    assert all(len(forward) == 1 for forward in masked)


def test_sampling_noise_belongs_to_the_position_not_to_the_forward():
    """Tokens before the first difference of two taus are the same although the passes differ."""
    base = DecodeConfig(temperature=1.0, seed=5, max_new_tokens=40, mode="one")
    one = flat(committed(run("llama, untied", prompt_of(9), base)))
    again = flat(committed(run("llama, untied", prompt_of(9), base)))
    other = flat(committed(run("llama, untied", prompt_of(9), replace(base, seed=6))))
    assert one == again
    assert one != other


@given(
    name=st.sampled_from(sorted(MODELS)),
    config=configs.filter(lambda c: c.max_new_tokens > 3),
    cut=st.integers(0, 12),
)
@settings(max_examples=40)
def test_closing_at_any_event_leaves_a_cache_that_continues_exactly(name, config, cut):
    prompt = prompt_of(11)
    session = Session(model(name), CONTEXT)
    events = decode(session, prompt, config, SPECIAL)
    so_far = []
    for _, event in zip(range(cut + 1), events, strict=False):
        if isinstance(event, Step):
            so_far += [token.token for token in event.tokens]
        assert session.tokens[0] == (prompt + so_far)[: len(session.tokens[0])]
        assert len(session.tokens[0]) <= len(prompt + so_far)
        assert MASK_ID not in session.tokens[0]
    events.close()
    left = config.max_new_tokens - len(so_far)
    if not left:
        return
    # an exact continuation needs no fixed grouping: compare with a cold cache at the same point
    config = replace(config, max_new_tokens=left)
    warm = list(decode(session, prompt + so_far, config, SPECIAL))
    cold = run(name, prompt + so_far, config)
    assert committed(warm) == committed(cold)
    assert warm[0].reused >= len(prompt) - 1
    if config.mode == "one":
        config = replace(config, max_new_tokens=left + len(so_far))
        assert so_far + flat(committed(warm)) == flat(committed(run(name, prompt, config)))


def test_prefix_is_reused_and_what_differs_is_forgotten():
    session = Session(model("llama, untied"), CONTEXT)
    config = DecodeConfig(mode="one", max_new_tokens=5)
    first = prompt_of(20)
    assert next(decode(session, first, config, SPECIAL)) == Prefill(0, tokens=19, reused=0)
    second = first[:10] + prompt_of(6, seed=9)
    events = list(decode(session, second, config, SPECIAL))
    assert events[0] == Prefill(0, tokens=5, reused=10)
    assert committed(events) == committed(run("llama, untied", second, config))


@pytest.mark.parametrize("name", MODELS)
def test_hindsight_is_ars_choice_after_the_same_prefix(name):
    prompt = prompt_of(13)
    config = DecodeConfig(tau=0.2, block_size=5, max_new_tokens=50)
    steps = steps_of(run(name, prompt, config))
    sequence = prompt + flat([[t.token for t in step.tokens] for step in steps])
    logits = model(name)(torch.tensor([sequence])).logits[0]
    logits[:, MASK_ID] = -torch.inf
    position = {(s.forward, t.slot): s.position + i for s in steps for i, t in enumerate(s.tokens)}
    seen = {}
    for step in steps:
        for h in step.hindsight:
            seen[h.forward, h.slot] = h
            row = logits[position[h.forward, h.slot] - 1]
            assert h.ar_token == int(row.argmax())
            assert h.ar_prob == pytest.approx(row.softmax(-1).max().item(), abs=1e-6)
    wanted = {(s.forward, t.slot) for s in steps[:-1] for t in s.tokens if t.slot > 0}
    assert set(seen) == wanted
    assert any(h.ar_token != sequence[position[key]] for key, h in seen.items())


def test_tau_is_read_at_every_step_and_changes_are_events():
    taus = [0.0, 0.0, 0.9, 1.0, 0.3, 0.3, 0.3] + [0.6] * 60
    config = DecodeConfig(tau=0.0, block_size=4, max_new_tokens=30)
    prompt = prompt_of(8)
    events = run("llama, untied", prompt, config, control=Taus(taus))
    assert committed(events) == reference_decode(
        model("llama, untied"), prompt, config, SPECIAL, taus
    )
    changes = [(e.forward, e.tau) for e in events if isinstance(e, ControlChanged)]
    assert changes[:3] == [(3, 0.9), (4, 1.0), (5, 0.3)]
    assert [step.tau for step in steps_of(events)] == taus[: len(steps_of(events))]


def test_mode_switches_while_running():
    control = LiveControl(DecodeConfig(tau=0.0, max_new_tokens=20))
    session = Session(model("llama, untied"), CONTEXT)
    config = DecodeConfig(tau=0.0, block_size=4, max_new_tokens=20)
    sizes = []
    for event in decode(session, prompt_of(8), config, SPECIAL, control):
        if isinstance(event, Step):
            sizes.append((event.mode, len(event.tokens), len(event.slots)))
            control.set(mode="one" if event.forward == 2 else event.mode)
    assert sizes[:3] == [("tau", 4, 4), ("tau", 4, 4), ("one", 1, 1)]
    assert sum(size for _, size, _ in sizes) == 20


def test_stop_ends_before_the_next_forward():
    control = LiveControl(DecodeConfig())
    events = []
    for event in decode(
        Session(model("llama, untied"), CONTEXT), prompt_of(8), DecodeConfig(), SPECIAL, control
    ):
        events.append(event)
        if isinstance(event, Step) and event.forward == 3:
            control.stop()
    assert len(steps_of(events)) == 3
    assert events[-1].reason == "stopped"
    assert events[-1].tokens == len(flat(committed(events)))


# --- scripted logits -------------------------------------------------------------------------


def scripted_run(script, config, **kwargs):
    session = Session(scripted.ScriptedModel(script), kwargs.pop("context", CONTEXT))
    special = kwargs.pop("special", SpecialTokens(scripted.MASK_ID, frozenset()))
    return list(decode(session, [1, 2, 3], config, special, **kwargs))


def counting(position, is_mask, *, logit=50.0):
    """Predicts the next position's number, masks as surely as tokens."""
    return (position + 1) % 60, logit


@pytest.mark.parametrize(
    ("mask_logit", "sizes"),
    [(0.0, [1] * 12), (50.0, [4, 4, 4])],
    ids=["never accept", "always accept"],
)
def test_scripted_never_and_always(mask_logit, sizes):
    events = scripted_run(
        lambda p, is_mask: ((p + 1) % 60, mask_logit if is_mask else 50.0),
        DecodeConfig(tau=0.5, block_size=4, max_new_tokens=12),
    )
    assert [len(forward) for forward in committed(events)] == sizes
    assert flat(committed(events)) == list(range(3, 15))


def test_scripted_sometimes():
    """Masks at odd positions are unsure: a forward commits up to the first of them."""
    events = scripted_run(
        lambda p, is_mask: ((p + 1) % 60, 0.0 if is_mask and p % 2 else 50.0),
        DecodeConfig(tau=0.5, block_size=4, max_new_tokens=12),
    )
    # slot i of a window is predicted from position (last + i): 3 from 2, then mask 3 is unsure
    assert [len(forward) for forward in committed(events)][:4] == [1, 2, 2, 2]


def test_tau_one_holds_where_float32_confidence_is_exactly_one():
    events = scripted_run(counting, DecodeConfig(tau=1.0, max_new_tokens=6))
    assert all(slot.confidence == 1.0 for step in steps_of(events) for slot in step.slots)
    assert [len(forward) for forward in committed(events)] == [1] * 6


@pytest.mark.parametrize("use_last_mask", [False, True])
def test_masks_are_fed_only_where_their_prediction_is_read(use_last_mask):
    model = scripted.ScriptedModel(counting)
    config = DecodeConfig(tau=0, block_size=3, use_last_mask=use_last_mask, max_new_tokens=7)
    special = SpecialTokens(scripted.MASK_ID, frozenset())
    steps = steps_of(decode(Session(model, CONTEXT), [1, 2, 3], config, special))
    masks = [call.count(scripted.MASK_ID) for call in model.calls[1:]]
    slots = 3 + use_last_mask
    assert masks[0] == slots - 1
    assert [len(step.slots) for step in steps] == [count + 1 for count in masks]
    assert [step.fed for step in steps] == [len(call) for call in model.calls[1:]]
    # the last forward has no slot that could not be kept
    assert sum(len(step.tokens) for step in steps) == 7
    assert len(steps[-1].slots) == 7 - sum(len(step.tokens) for step in steps[:-1])


def test_mode_one_feeds_no_masks():
    """A prompt of one token needs no prefill; each forward feeds the token of the last."""
    model = scripted.ScriptedModel(counting)
    special = SpecialTokens(None, frozenset())
    list(decode(Session(model, CONTEXT), [7], DecodeConfig(mode="one", max_new_tokens=5), special))
    assert model.calls == [[7], [1], [2], [3], [4]]


def test_nothing_after_eos_counts():
    events = scripted_run(
        counting,
        DecodeConfig(tau=0, block_size=4),
        special=SpecialTokens(scripted.MASK_ID, frozenset({8})),
    )
    assert flat(committed(events)) == [3, 4, 5, 6, 7, 8]
    last = steps_of(events)[-1]
    assert [slot.accepted for slot in last.slots] == [True, True, False, False]
    assert events[-1] == Done(0, "eos", tokens=6, forwards=2)


def test_the_mask_token_is_never_emitted():
    events = scripted_run(
        lambda p, is_mask: (scripted.MASK_ID, 50.0), DecodeConfig(tau=0, max_new_tokens=8)
    )
    assert scripted.MASK_ID not in flat(committed(events))
    assert all(
        scripted.MASK_ID not in [i for i, _ in slot.alternatives]
        for step in steps_of(events)
        for slot in step.slots
    )


def test_the_run_ends_at_the_context():
    events = scripted_run(counting, DecodeConfig(tau=0, max_new_tokens=100), context=12)
    assert len(flat(committed(events))) == 9
    assert events[-1].reason == "context"


def test_stop_string_across_forwards():
    tokenizer = tiny_tokenizer()
    text = tokenizer.encode("one two three. And more", add_special_tokens=False)

    model = scripted.ScriptedModel(lambda p, _: (text[(p - 2) % len(text)], 50.0), vocab=400)
    config = DecodeConfig(tau=0, block_size=4, stop=("ee. A", "never"))
    special = SpecialTokens(scripted.MASK_ID, frozenset())
    stop = StopStrings(tokenizer, config.stop)
    events = list(decode(Session(model, CONTEXT), [7, 8, 9], config, special, stop=stop))
    assert tokenizer.decode(flat(committed(events))) == "one two three. A"
    assert events[-1].reason == "stop"


@pytest.mark.parametrize(
    ("prompt", "message"),
    [([], "empty"), ([1] * CONTEXT, f"{CONTEXT} tokens but the model's context is {CONTEXT}")],
)
def test_bad_prompts(prompt, message):
    with pytest.raises(MarsError, match=message):
        run("llama, untied", prompt, DecodeConfig())


def test_masks_need_a_mask_token():
    with pytest.raises(MarsError, match="no mask token"):
        run("llama, untied", [7], DecodeConfig(), SpecialTokens(None, frozenset()))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_is_an_error_not_a_token(value):
    with pytest.raises(MarsError, match="not a number"):
        scripted_run(lambda p, is_mask: (1, value), DecodeConfig())


# --- batches of one-token decoding --------------------------------------------------------------


@given(
    name=st.sampled_from(sorted(MODELS)),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    penalty=st.sampled_from([1.0, 1.3]),
    ngram=st.sampled_from([0, 2]),
    eos=st.booleans(),
)
@settings(max_examples=40)
def test_every_row_of_a_batch_equals_its_own_run(name, lengths, penalty, ngram, eos):
    prompts = [prompt_of(length, seed) for seed, length in enumerate(lengths)]
    config = DecodeConfig(
        mode="one",
        max_new_tokens=12,
        repetition_penalty=penalty,
        no_repeat_ngram_size=ngram,
    )
    singles = [flat(committed(run(name, prompt, config))) for prompt in prompts]
    special = SPECIAL
    if eos:
        special = SpecialTokens(MASK_ID, frozenset({singles[0][3], singles[-1][7]}))
        singles = [flat(committed(run(name, prompt, config, special))) for prompt in prompts]
    session = Session(model(name), CONTEXT, rows=len(prompts))
    rows = {row: [] for row in range(len(prompts))}
    dones = {}
    for event in decode_batch(session, [Request(p, config) for p in prompts], special):
        if isinstance(event, Step):
            assert event.row not in dones
            rows[event.row] += [token.token for token in event.tokens]
        elif isinstance(event, Done):
            dones[event.row] = event
    assert list(rows.values()) == singles
    assert all(done.tokens == done.forwards == len(singles[r]) for r, done in dones.items())
    assert len(dones) == len(prompts)


def test_a_batch_draws_as_its_rows_whatever_is_beside_them():
    config = DecodeConfig(mode="one", max_new_tokens=10, temperature=1.0, seed=3)

    def sampled(prompts):
        session = Session(model("llama, untied"), CONTEXT, rows=len(prompts))
        events = list(decode_batch(session, [Request(p, config) for p in prompts], SPECIAL))
        return [
            [t.token for e in events if isinstance(e, Step) and e.row == row for t in e.tokens]
            for row in range(len(prompts))
        ]

    prompts = [prompt_of(9, 1), prompt_of(5, 2), prompt_of(20, 3)]
    assert sampled(prompts)[:2] == sampled(prompts[:2])
    alone = flat(committed(run("llama, untied", prompts[0], config)))
    assert sampled(prompts)[0] == alone


def test_stop_ends_every_row_of_a_batch():
    control = LiveControl(DecodeConfig())
    session = Session(model("llama, untied"), CONTEXT, rows=2)
    config = DecodeConfig(mode="one", max_new_tokens=10)
    events = []
    for event in decode_batch(
        session, [Request(ids, config, control) for ids in ([7], [8, 9])], SPECIAL
    ):
        events.append(event)
        control.stop()
    assert [(e.row, e.reason, e.tokens) for e in events if isinstance(e, Done)] == [
        (0, "stopped", 0),
        (1, "stopped", 0),
    ]
