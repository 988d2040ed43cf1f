"""Forwards of fixed shapes give the tokens of the others, and are few shapes indeed."""

from __future__ import annotations

from dataclasses import replace
from shutil import which

import pytest
import torch
import torch._inductor.exc

from mars_core import compiled
from mars_core.about import describe_device
from mars_core.chat import Turn
from mars_core.config import DecodeConfig
from mars_core.decode import decode, decode_batch
from mars_core.engine import Engine
from mars_core.errors import MarsError
from mars_core.events import Done, Step
from mars_core.models.load import load
from mars_core.row import Request
from tests.tiny import edit, tiny_checkpoint, tiny_llama, tiny_qwen3

COMPILED = compiled._compiled
PLAIN = {"device": "cpu", "dtype": "float64"}
PROMPTS = [[5, 9, 7], [8, 6, 12, 40, 41, 42], [3, 4]]
WAYS = [
    DecodeConfig(mode="one", max_new_tokens=20, alternatives=0),
    DecodeConfig(tau=0.4, max_new_tokens=20, alternatives=0),
    DecodeConfig(mode="verified", drafts=2, adaptive=False, max_new_tokens=20, alternatives=0),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    model = tiny_qwen3(seed=5, sharpen=6)
    return str(tiny_checkpoint(tmp_path_factory.mktemp("compiled") / "tiny", model, mask=True))


@pytest.fixture(scope="module")
def plain(folder):
    return load(folder, **PLAIN)


@pytest.fixture(scope="module")
def fixed(folder):
    """Traced as for a GPU, the whole forward in one piece, but run by torch's own kernels."""
    patch = pytest.MonkeyPatch()
    shapes = []

    def backend(graph, inputs):
        shapes.append([tuple(x.shape) for x in inputs if isinstance(x, torch.Tensor)])
        return graph.forward

    made = torch.compile(compiled._forward, dynamic=False, fullgraph=True, backend=backend)
    patch.setattr(compiled, "_compiled", lambda: made)
    patch.setattr(compiled, "CAPACITY", 64)
    patch.setattr(torch._dynamo.config, "recompile_limit", compiled.SHAPES)
    told = []
    loaded = load(folder, **PLAIN, compiled=True, progress=lambda *said: told.append(said))
    assert [said for said in told if said[0] == "compile"] == [("compile", i, 4) for i in range(4)]
    assert len(shapes) == 4
    yield loaded, shapes
    patch.undo()


def tokens_of(events):
    found = [event for event in events if isinstance(event, Step | Done)]
    return [
        (e.row, e.reason, e.forwards)
        if isinstance(e, Done)
        else (e.row, e.tokens, [(s.token, round(s.prob, 9)) for s in e.slots])
        for e in found
    ]


@pytest.mark.parametrize("config", WAYS, ids=lambda config: config.mode)
def test_one_sequence(plain, fixed, config):
    loaded, shapes = fixed
    before = len(shapes)
    ours, theirs = (
        tokens_of(decode(one.session(), PROMPTS[1], config, one.special)) for one in (loaded, plain)
    )
    assert ours == theirs
    assert len(ours) > 4
    assert len(shapes) == before, "what was compiled when the model was loaded is enough"


def test_many_sequences(plain, fixed):
    loaded, shapes = fixed
    before = len(shapes)
    requests = [Request(p, c) for p, c in zip(PROMPTS, WAYS, strict=True)]
    ours, theirs = (
        tokens_of(decode_batch(one.session(2), requests, one.special)) for one in (loaded, plain)
    )
    assert ours == theirs
    assert before < len(shapes) <= before + len(compiled.WIDTHS)


def test_a_buffer_that_grows(plain, fixed):
    loaded, _ = fixed
    session = loaded.session(1, 10)
    assert session.capacity == 64
    config = DecodeConfig(tau=0.4, max_new_tokens=80, alternatives=0)
    found = tokens_of(decode(session, PROMPTS[0], config, loaded.special))
    assert found == tokens_of(decode(plain.session(), PROMPTS[0], config, plain.special))
    assert session.capacity == 128


def test_a_batch_is_compiled_before_it_is_timed(fixed, monkeypatch):
    """And the next of the same shape has the buffers that graphs were recorded for."""
    monkeypatch.setattr(compiled, "CAPACITY", 256)  # as in earnest, with room for the warm-up
    loaded, shapes = fixed
    engine = Engine(loaded)
    config = DecodeConfig(mode="one", max_new_tokens=4, alternatives=0)
    said = [[Turn("user", 40 * letter)] for letter in "abc"]  # prompts are longer than windows
    run = engine.generate_batch(said, config, 3)
    before = len(shapes)
    next(run)
    warmed = len(shapes)
    assert before < warmed
    first = [record for record in run if record.type == "step"]
    assert len(shapes) == warmed
    session = engine._batch
    again = [r for r in engine.generate_batch(said, config, 3) if r.type == "step"]
    assert engine._batch is session
    assert [r.tokens for r in again] == [r.tokens for r in first]
    assert len(shapes) == warmed


def test_a_batch_left_in_the_middle_leaves_nothing_to_the_next(plain, fixed):
    config = DecodeConfig(tau=0.4, max_new_tokens=6, alternatives=0, adaptive_masks=True)
    engine, other = Engine(fixed[0]), Engine(plain)
    said = [[Turn("user", word)] for word in ("one", "two")]
    run = engine.generate_batch(said, config, 2)
    for _ in range(4):
        next(run)
    run.close()
    plainly = replace(config, adaptive_masks=False)
    found, wanted = (
        [r.tokens for r in one.generate_batch(said, plainly, 2) if r.type == "step"]
        for one in (engine, other)
    )
    assert found == wanted


def test_engine_runs_in_the_buffers_it_was_warmed_up_in(fixed):
    """Costs are of replayed graphs: forwards are measured where they are going to be run."""
    engine = Engine(fixed[0])
    said = [Turn("user", "a b c")]
    config = DecodeConfig(mode="verified", max_new_tokens=6, alternatives=0)
    wanted = [r.tokens for r in engine.generate(said, config) if r.type == "step"]
    layer = engine._session._layers[0]
    assert layer.is_initialized
    keys = layer.keys
    engine.warm_up(replace(config, block_size=7))
    assert engine._session.tokens == []  # what was assumed is not left as if it were text
    assert [r.tokens for r in engine.generate(said, config) if r.type == "step"] == wanted
    assert layer.keys is keys


def test_no_more_shapes_than_torch_takes_are_compiled(plain, fixed, monkeypatch):
    loaded, shapes = fixed
    monkeypatch.setattr(compiled, "SHAPES", len(compiled._shapes))
    before = len(shapes)
    prompts = [[5, 6 + i] for i in range(5)]
    requests = [Request(prompt, WAYS[1]) for prompt in prompts]
    ours, theirs = (
        tokens_of(decode_batch(one.session(5), requests, one.special)) for one in (loaded, plain)
    )
    assert ours == theirs
    assert len(shapes) == before


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_results_say_that_forwards_were_compiled(fixed, monkeypatch, device):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    shown = describe_device(replace(fixed[0], device=torch.device(device)))
    assert shown.startswith(device)
    assert shown.endswith(", compiled")


def test_a_failed_compilation_is_one_line(folder, monkeypatch):
    def fail(*arguments):
        raise torch._inductor.exc.InductorError(RuntimeError("no compiler\nhere"), None)

    monkeypatch.setattr(compiled, "_compiled", lambda: fail)
    with pytest.raises(MarsError, match=r"cannot be compiled \(.*\): leave out --compiled"):
        load(folder, **PLAIN, compiled=True)


@pytest.mark.skipif(not which("g++"), reason="torch compiles for CPUs with g++")
def test_with_torch_s_own_compiler(folder, plain, monkeypatch):
    """One shape for real: it takes half a minute. The norms' float32 is rounded otherwise there."""
    monkeypatch.setattr(compiled, "_compiled", COMPILED)
    monkeypatch.setattr("mars_core.models.load.WIDTHS", ())
    loaded = load(folder, **PLAIN, compiled=True)
    ours, theirs = (
        [
            event.tokens
            for event in decode(one.session(), PROMPTS[0], WAYS[0], one.special)
            if isinstance(event, Step)
        ]
        for one in (loaded, plain)
    )
    assert ours == theirs
    assert len(ours) > 4


def test_other_models_cannot_be_compiled(tmp_path):
    folder = tiny_checkpoint(tmp_path / "tiny", tiny_llama(seed=1), mask=True)
    edit(folder / "config.json", hidden_act="gelu")
    with pytest.raises(MarsError, match="leave out --compiled"):
        load(str(folder), **PLAIN, compiled=True)
