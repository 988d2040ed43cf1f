"""A draft model and masks of the target together, against the slow composition."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mars_core import cli, trace
from mars_core.cache import Session
from mars_core.composition import ModelDrafter
from mars_core.config import DecodeConfig, SpecialTokens
from mars_core.decode import decode
from mars_core.engine import Engine
from mars_core.errors import MarsError
from mars_core.events import Done, Drafted, Step
from mars_core.models.load import load
from mars_core.reference import reference_composed, reference_decode
from mars_core.trace import Message
from tests.test_verified import few_words, prompts
from tests.tiny import MASK_ID, tiny_checkpoint, tiny_llama, tiny_qwen2
from tests.training.runs import PLAIN

CONTEXT = 256
PAIRS = {
    "llama for qwen2": (lambda: tiny_qwen2(seed=3, sharpen=20), lambda: tiny_llama(1, sharpen=20)),
    "itself": (lambda: tiny_llama(seed=1, sharpen=20), lambda: tiny_llama(seed=1, sharpen=20)),
}


@cache
def pair(name):
    return [few_words(make()) for make in PAIRS[name]]


def run(name, prompt, config, drafting, special, context=CONTEXT):
    target, draft = pair(name)
    drafter = ModelDrafter(Session(draft, context), drafting, special)
    return list(decode(Session(target, CONTEXT), prompt, config, special, drafter=drafter))


def forwards_of(events):
    steps = [event for event in events if isinstance(event, Step)]
    return [[token.token for token in step.tokens] for step in steps]


configs = st.builds(
    DecodeConfig,
    mode=st.sampled_from(["one", "tau", "verified"]),
    tau=st.sampled_from([0.0, 0.4, 0.8, 1.0]),
    block_size=st.integers(1, 4),
    drafts=st.integers(1, 5),
    max_new_tokens=st.integers(1, 30),
    temperature=st.sampled_from([0.0, 0.0, 0.8]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.3]),
    seed=st.integers(0, 2),
)


@given(
    name=st.sampled_from(sorted(PAIRS)),
    prompt=prompts,
    config=configs,
    draft_mode=st.sampled_from(["one", "tau"]),
    eos=st.none() | st.integers(0, 20),
)
@settings(max_examples=80)
def test_equals_the_slow_composition(name, prompt, config, draft_mode, eos):
    """Drafts that the target would say itself, then its own forward with masks; ends included."""
    drafting = replace(config, mode=draft_mode, tau=0.3)
    # of the target, whose masks mode verified has no use for where a model drafts
    slow = replace(config, mode="tau" if config.mode == "tau" else "one")
    special = SpecialTokens(MASK_ID, frozenset())
    if eos is not None:
        wanted = reference_composed(*pair(name), prompt, slow, drafting, special)
        said = [token for forward in wanted for token in forward]
        special = SpecialTokens(MASK_ID, frozenset({said[eos % len(said)]}))
    wanted = reference_composed(*pair(name), prompt, slow, drafting, special)
    events = run(name, prompt, config, drafting, special)
    assert forwards_of(events) == wanted
    if config.mode != "tau" or config.tau == 1:
        alone = reference_decode(pair(name)[0], prompt, replace(config, mode="one"), special)
        said = [token for forward in wanted for token in forward]
        assert said == [token for forward in alone for token in forward]
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.tokens, done.forwards) == (sum(map(len, wanted)), len(wanted))


def test_a_model_keeps_all_that_it_drafted_itself():
    config = DecodeConfig(mode="one", drafts=4, max_new_tokens=25)
    special = SpecialTokens(MASK_ID, frozenset())
    events = run("itself", [20, 60, 7], config, config, special)
    assert list(map(len, forwards_of(events))) == [5] * 5
    drafted = [event for event in events if isinstance(event, Drafted)]
    assert {event.forward for event in drafted} == {1, 2, 3, 4, 5}
    assert all(event.fed >= 1 for event in drafted)


def test_a_draft_model_with_less_context_leaves_the_target_alone():
    config = DecodeConfig(mode="one", drafts=4, max_new_tokens=20)
    special = SpecialTokens(MASK_ID, frozenset())
    events = run("itself", [20, 60, 7], config, config, special, context=10)
    lengths = list(map(len, forwards_of(events)))
    assert lengths[0] == 5
    assert lengths[-5:] == [1] * 5
    assert sum(lengths) == 20


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("pair")
    big = few_words(tiny_qwen2(seed=3, sharpen=20))
    small = few_words(tiny_llama(seed=1, sharpen=20))
    made = [tiny_checkpoint(root / n, m, mask=True) for n, m in (("big", big), ("small", small))]
    return list(map(str, made))


def test_the_trace_tells_of_the_draft_model(folders, tmp_path):
    big, small = (load(folder, **PLAIN) for folder in folders)
    messages = [Message(role="user", content="Go.")]
    config = DecodeConfig(tau=0.4, drafts=3, max_new_tokens=20)
    records = list(Engine(big, draft=small, draft_mode="tau").generate(messages, config))
    header, done = records[0], records[-1]
    assert (header.model.name, header.draft_model.name) == ("big", "small")
    drafts = [record for record in records if record.type == "forward"]
    steps = [record for record in records if record.type == "step"]
    assert {record.role for record in drafts} == {"draft"}
    assert all(draft.origin is None for step in steps for draft in step.drafts)
    assert done.decode_ms == pytest.approx(sum(r.ms for r in (*drafts, *steps)))
    trace.write_trace(tmp_path / "run.jsonl", records)
    assert trace.read_trace(tmp_path / "run.jsonl") == records


def test_the_command(folders, capsys):
    big, small = folders
    command = ["generate", "Go.", "--model", big, "--draft-model", small, "--mode", "one"]
    options = ["--drafts", "2", "--max-new-tokens", "8", "--json", "--device", "cpu"]
    assert cli.main([*command, *options]) == 0
    records = [trace.parse_record(line) for line in capsys.readouterr().out.splitlines()]
    assert records[0].draft_model.name == "small"
    assert records[-1].tokens == 8


def test_models_of_other_tokens_cannot_draft(folders, tmp_path):
    big, small = folders
    other = tiny_checkpoint(tmp_path / "other")  # whose tokenizer has no mask
    with pytest.raises(MarsError, match="do not have the same tokens"):
        Engine(load(big, **PLAIN), draft=load(str(other), **PLAIN))
    unmasked = replace(load(small, **PLAIN), special=SpecialTokens(None, frozenset()))
    with pytest.raises(MarsError, match="no mask token"):
        Engine(load(big, **PLAIN), draft=unmasked, draft_mode="tau")
