"""Training runs on tiny models: what they learn, and what they write."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from mars_core.cache import Session
from mars_core.chat import encode_chat
from mars_core.config import DecodeConfig
from mars_core.decode import decode
from mars_core.errors import MarsError
from mars_core.events import Step
from mars_core.models.fetch import read_record
from mars_core.models.load import load
from mars_core.trace import Message
from mars_core.training import model as training_model
from mars_core.training import train, trainer
from mars_core.training.checkpoint import Checkpoints
from mars_core.training.evaluate import held_out_losses
from mars_core.training.objective import Blocks, Example, Ids, build_batch
from mars_core.training.settings import Source, from_mapping, read_yaml, to_yaml
from mars_core.training.stream import Mix
from mars_core.training.train import run
from tests.tiny import EOS_ID, MASK_ID, tiny_checkpoint, tiny_llama, tiny_qwen2, tiny_qwen3
from tests.training.runs import (
    PLAIN,
    Killed,
    Ticks,
    kill_at,
    log_of,
    problem,
    same,
    silent,
    weights,
)

MODELS = {"llama": tiny_llama, "qwen2": tiny_qwen2, "qwen3": tiny_qwen3}
IDS = Ids(MASK_ID, EOS_ID)
EXAMPLE = Example([10, 11, 12, 20, 21, 22, 23], start=3, finished=True)


def test_a_run_learns_and_its_adapter_loads(config):
    """Sixty steps; then everything that is promised of the folder."""
    config = replace(config, steps=60, rank=8, lr=2e-2)
    said = []
    folder = run(config, report=said.append)
    assert folder == config.out / "adapter"
    first, *_, last = (e for e in log_of(config) if e["kind"] == "evaluation")
    assert (first["step"], last["step"]) == (0, 60)
    for loss in ("ar_loss", "mask_loss"):
        assert last[loss] < first[loss] - 1.5
    assert last["slots"][0]["right"] > 0.6
    assert last["slots"][1]["right"] > 0.2
    assert last["verified"] > first["verified"] == 1
    assert first["tokens_per_forward"] >= 1
    assert sum("held out:" in text for text in said) == 2
    assert said[-1] == f"written to {folder}"
    assert [e["step"] for e in log_of(config) if e["kind"] == "train"] == list(range(2, 61, 2))

    loaded = load(config.model, adapter=str(folder), **PLAIN)
    assert (loaded.trained, loaded.block_size, loaded.adapter) == (True, 4, "adapter")
    assert loaded.special.mask_id == MASK_ID
    settings = json.loads((folder / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == "base"
    about = json.loads((folder / "about.json").read_text())
    assert about["steps"] == 60
    assert about["examples"]["training"] + about["examples"]["held out"] == 60
    assert from_mapping(read_yaml(folder / "training.yaml")) == config
    assert "Plotly" in (config.out / "plot.html").read_text()[:5_000_000]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_compiled_layers_learn_the_same(config):
    """In bfloat16, in shapes that change; the layers decode as they are."""
    config = replace(
        config, steps=3, log_steps=1, dtype="bfloat16", evaluate_tokens=4, ar_teacher=0.5
    )
    plain = replace(config, out=config.out.with_name("plain"))
    run(plain, report=silent)
    run(replace(config, compile=True, attention="eager"), report=silent)
    for ours, theirs in zip(log_of(config), log_of(plain), strict=True):
        for loss in ("ar_loss", "mask_loss"):
            assert ours[loss] == pytest.approx(theirs[loss], abs=0.03)


def test_without_a_compiler_it_says_so(config, tmp_path):
    """In a process of its own: torch looks for the compiler once."""
    (tmp_path / "run.yaml").write_text(to_yaml(replace(config, compile=True)))
    done = subprocess.run(
        [sys.executable, "-m", "mars_core.cli", "train", "--config", str(tmp_path / "run.yaml")],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "CXX": "/nowhere/g++",
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
        },
        check=False,
    )
    assert done.returncode == 2
    assert "the layers cannot be compiled" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_what_is_learned_is_what_decoding_asks_for(config, tmp_path):
    """Trained on one answer, the model gives it in a fraction of the forwards AR needs."""
    answer = "the sand and the sun are on the other side of it"
    path = tmp_path / "one.jsonl"
    rows = [{"prompt": f"Say it {i}", "response": answer} for i in range(8)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = run(
        replace(config, data=(Source(str(path)),), method="full", lr=1e-2, steps=120, validation=0),
        report=silent,
    )
    loaded = load(str(folder), **PLAIN)
    prompt, _ = encode_chat(loaded.tokenizer, [Message(role="user", content="Say it 3")])
    for settings, most in ((DecodeConfig(mode="one"), 1.0), (DecodeConfig(tau=0.9), 4.0)):
        *events, done = decode(Session(loaded.model, 256), prompt, settings, loaded.special)
        tokens = [t.token for e in events if isinstance(e, Step) for t in e.tokens]
        assert loaded.tokenizer.decode(tokens) == f"{answer}<|im_end|>"
        assert done.reason == "eos"
        assert 0.8 * most <= done.tokens / done.forwards <= most


def test_only_the_masks_row_of_a_tied_head_changes(config):
    folder = run(config, report=silent)
    before, after = (
        load(config.model, **PLAIN).model,
        load(config.model, adapter=str(folder), **PLAIN).model,
    )
    for kind in ("get_input_embeddings", "get_output_embeddings"):
        moved = (getattr(after, kind)().weight - getattr(before, kind)().weight).abs().sum(1)
        assert moved.nonzero().flatten().tolist() == [MASK_ID]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tied", [True, False])
def test_losses_and_gradients_are_those_of_the_formula(tmp_path, config, name, tied):
    """The dual model's loss against cross-entropy on full logits, and the exported adapter."""
    path = tiny_checkpoint(tmp_path / name, MODELS[name](dtype=torch.float32, tied=tied), mask=True)
    loaded = load(str(path), **PLAIN)
    settings = replace(config, ar_weight=0.5, mask_weight=2.0)
    dual = training_model.prepare(loaded, settings, IDS)
    trainable = [n for n, p in dual.named_parameters() if p.requires_grad]
    assert all("lora_" in n or "trainable_tokens_delta" in n for n in trainable)
    assert sum("trainable_tokens_delta" in n for n in trainable) == 1
    torch.manual_seed(1)
    for parameter in dual.parameters():
        if parameter.requires_grad:
            parameter.data += 0.1 * torch.randn_like(parameter)
    batch = build_batch([EXAMPLE], [[Blocks(3, 1)]], IDS)
    found = dual(**{name: getattr(batch, name) for name in batch.__slots__})
    found["loss"].backward()
    grads = [p.grad.clone() for p in dual.parameters() if p.requires_grad]
    assert all(grad.abs().sum() > 0 for grad in grads)

    training_model.save_weights(dual, loaded, tmp_path / "lora")
    merged = load(str(path), adapter=str(tmp_path / "lora"), **PLAIN).model
    seen = training_model.dense_mask(batch.stream, batch.position_ids, batch.begin)
    logits = merged(
        input_ids=batch.input_ids, position_ids=batch.position_ids, attention_mask=seen
    ).logits.flatten(0, 1)[batch.rows]
    logits[:, MASK_ID] = -torch.inf
    nll = torch.nn.functional.cross_entropy(logits, batch.labels, reduction="none")
    clean = batch.slots == 0
    parts = nll[clean].mean(), nll[~clean].mean()
    assert found["ar"].item() == pytest.approx(parts[0].item(), abs=1e-4)
    assert found["mask"].item() == pytest.approx(parts[1].item(), abs=1e-4)
    assert found["loss"].item() == pytest.approx(
        0.5 * parts[0].item() + 2 * parts[1].item(), abs=1e-4
    )


@pytest.mark.parametrize("method", ["lora", "full"])
def test_the_teacher_is_the_model_before_training(config, method):
    """In sequences of different lengths; it stays as it was while the model is trained."""
    loaded = load(config.model, **PLAIN)
    before = load(config.model, **PLAIN).model
    settings = replace(config, method=method, ar_teacher=0.5)
    dual = training_model.prepare(loaded, settings, IDS)
    tensors = {id(p) for p in dual.model.parameters()}
    assert all((id(p) in tensors) == (method == "lora") for p in dual.teacher.parameters())
    for parameter in dual.model.parameters():
        if parameter.requires_grad:
            parameter.data += 0.1
    longer = Example([10, 11, 12, 13, 20, 21, 22, 23, 24], start=4, finished=False)
    batch = build_batch([EXAMPLE, longer], [[Blocks(3, 1)], [Blocks(2)]], IDS)
    teacher = dual.lesson(batch.input_ids, batch.stream, batch.rows, batch.slots)
    assert torch.equal(teacher.rows, (batch.slots == 0).nonzero()[:, 0])
    logits = torch.nn.functional.linear(teacher.hidden, teacher.head, teacher.bias)
    whole = torch.cat(
        [
            before(input_ids=torch.tensor([ids])).logits[0, start - 1 : -1]
            for ids, start in (([*EXAMPLE.ids, EOS_ID], 3), (longer.ids, 4))
        ]
    )
    assert torch.allclose(logits, whole, atol=1e-5)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_teacher_holds_the_clean_stream_back(config, share):
    """Trained on its own greedy answer a model grows certain of it; not with the teacher."""
    ids = [10, 11, 12]
    base = load(config.model, **PLAIN).model
    while len(ids) < 12:
        logits = base(input_ids=torch.tensor([ids])).logits[0, -1]
        logits[MASK_ID] = -torch.inf
        ids.append(int(logits.argmax()))
    settings = replace(config, rank=8, lr=2e-2, ar_teacher=share)
    dual = training_model.prepare(load(config.model, **PLAIN), settings, IDS)
    batch = build_batch([Example(ids, start=3, finished=False)], [[Blocks(3)]], IDS)
    optimizer = torch.optim.AdamW(training_model.groups(dual), weight_decay=0)
    found = []
    for _ in range(40):
        losses = dual(**{name: getattr(batch, name) for name in batch.__slots__})
        found.append((losses["ar"].item(), losses["mask"].item()))
        optimizer.zero_grad()
        losses["loss"].backward()
        optimizer.step()
    (ar_before, mask_before), (ar, mask) = found[0], found[-1]
    assert mask < 0.2 * mask_before
    assert ar > 0.8 * ar_before if share else ar < 0.2 * ar_before


def test_what_is_unwanted_grows_unlikely(config):
    """A model that learned to repeat itself stops doing so; the log's losses leave it out."""
    ids = [10, 11, 12, 13, 12, 13, 12, 13]
    said = build_batch([Example(ids, start=2, finished=False)], [[]], IDS)
    stuck = Example(ids, start=2, finished=False, unwanted=[6, 7])
    both = build_batch([stuck, EXAMPLE], [[], [Blocks(3)]], IDS)
    other = build_batch([EXAMPLE], [[Blocks(3)]], IDS)
    settings = replace(config, rank=8, lr=2e-2, unlikelihood=2.0)
    dual = training_model.prepare(load(config.model, **PLAIN), settings, IDS)
    optimizer = torch.optim.AdamW(training_model.groups(dual), weight_decay=0)

    def losses(batch):
        return dual(**{name: getattr(batch, name) for name in batch.__slots__})

    def learn(batch, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            losses(batch)["loss"].backward()
            optimizer.step()

    @torch.no_grad()
    def p_unwanted():
        logits = dual.causal(torch.tensor([ids])).logits[0, [5, 6]]
        logits[:, MASK_ID] = -torch.inf
        return logits.softmax(-1)[[0, 1], [12, 13]]

    learn(said, 40)
    p, found, plain = p_unwanted(), losses(both), losses(other)
    assert (p > 0.25).all()
    by_hand = -torch.log1p(-p).mean()  # times the weight of 2, for one sequence of two
    assert found["loss"].item() == pytest.approx(
        plain["loss"].item() / 2 + by_hand.item(), rel=1e-3
    )
    for part in ("ar", "mask"):
        assert found[part].item() == pytest.approx(plain[part].item() / 2, rel=1e-3)
    learn(both, 40)
    assert (p_unwanted() < 0.05).all()


def test_what_learns_how_fast(config):
    """The mask's embedding faster than the rest; in full training only matrices decay."""
    lora = replace(config, lr=1e-3, weight_decay=0.1)
    found = training_model.groups(training_model.prepare(load(config.model, **PLAIN), lora, IDS))
    assert [(g["lr"], g["weight_decay"]) for g in found] == [(1e-3, 0.1), (3e-3, 0.0)]
    assert [tuple(p.shape) for p in found[1]["params"]] == [(1, 32)]
    full = replace(lora, method="full")
    found = training_model.groups(training_model.prepare(load(config.model, **PLAIN), full, IDS))
    assert [(g["lr"], g["weight_decay"]) for g in found] == [(1e-3, 0.1), (1e-3, 0.0)]
    assert {p.ndim for p in found[0]["params"]} == {2}
    assert {p.ndim for p in found[1]["params"]} == {1}


def test_full_fine_tuning(config):
    settings = replace(
        config, method="full", lr=3e-3, checkpoint_minutes=2.5 / 60, weight_decay=0.1
    )
    whole = replace(settings, out=config.out.with_name("whole"))
    folder = run(whole, report=silent, clock=Ticks())
    assert folder == whole.out / "model"
    loaded = load(str(folder), **PLAIN)
    assert (loaded.trained, loaded.block_size, loaded.weights) == (True, 4, "bfloat16 weights")
    assert loaded.special.mask_id == MASK_ID
    before = load(settings.model, **PLAIN).model
    moved = [
        not torch.equal(a.bfloat16(), b.bfloat16())
        for a, b in zip(before.parameters(), loaded.model.parameters(), strict=True)
    ]
    assert all(moved)
    with pytest.raises(Killed):
        run(replace(settings, log_steps=1), report=kill_at(5), clock=Ticks())
    resumed = run(replace(settings, log_steps=1, resume=True), report=silent, clock=Ticks(10**4))
    assert same(weights(resumed), weights(folder))


def test_accumulated_parts_are_one_batch(config):
    """Examples in forwards of 2 give what they give in one of 4, up to rounding."""
    runs = [
        weights(run(replace(config, out=config.out / str(n), accumulate=n), report=silent))
        for n in (1, 2)
    ]
    for name, wanted in runs[0].items():
        # weights are written in bfloat16: a hair more or less may be the next number
        assert torch.allclose(runs[1][name], wanted, atol=1e-5, rtol=2**-7), name


def test_weights_of_zero(config):
    """Without L_AR the clean stream has no loss; without L_mask there is no noisy stream."""
    run(replace(config, ar_weight=0), report=silent)
    entries = [e for e in log_of(config) if e["kind"] == "train"]
    assert entries[-1]["ar_loss"] is None
    assert entries[-1]["slots"][0]["loss"] is None
    assert entries[-1]["slots"][1]["loss"] > 0
    plain = replace(config, mask_weight=0, out=config.out.with_name("plain"))
    folder = run(plain, report=silent)
    entries = [e for e in log_of(plain) if e["kind"] == "train"]
    assert entries[-1]["mask_loss"] is None
    assert {slot["loss"] for slot in entries[-1]["slots"][1:]} == {None}
    assert json.loads((folder / "mars.json").read_text()) == {}  # it declares no MARS training
    moved = weights(folder)[
        "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta"
    ]
    assert torch.equal(
        moved[0], load(config.model, **PLAIN).model.model.embed_tokens.weight[MASK_ID].bfloat16()
    )


def test_an_adapter_can_be_gone_on_from(config, tmp_path):
    """Its weights are where the new run begins, its mask the one that is used."""
    first = run(replace(config, mask_token="9"), report=silent)
    again = replace(config, out=tmp_path / "again", adapter=str(first), lr=1e-9)
    second = run(again, report=silent)
    assert json.loads((second / "mars.json").read_text())["mask_token_id"] == 9
    for name, was in weights(first).items():
        assert torch.allclose(weights(second)[name].float(), was.float(), atol=1e-6), name
    ends = [e["mask_loss"] for c in (config, again) for e in log_of(c) if e["kind"] != "train"]
    assert ends[2] == pytest.approx(ends[1], abs=0.02)  # up to the rounding of what is stored
    plain = run(replace(again, out=tmp_path / "plain", mask_weight=0), report=silent)
    assert read_record(plain) == read_record(first)  # its masks were trained, if not here
    other = problem(replace(again, out=tmp_path / "other"), rank=3)
    assert "adapter adapter cannot be gone on from" in other


def test_a_bfloat16_base_is_trained_in_float32(config, monkeypatch):
    made = []
    monkeypatch.setattr(
        train,
        "prepare",
        lambda *args, **kw: made.append(training_model.prepare(*args, **kw)) or made[0],
    )
    folder = run(replace(config, dtype="bfloat16", steps=2), report=silent)
    kinds = {p.requires_grad: set() for p in made[0].parameters()}
    for parameter in made[0].parameters():
        kinds[parameter.requires_grad].add(parameter.dtype)
    assert kinds == {True: {torch.float32}, False: {torch.bfloat16}}
    assert made[0].autocast
    exact = Checkpoints(config.out / "checkpoints").last()
    assert {w.dtype for w in weights(exact).values()} == {torch.float32}
    assert {w.dtype for w in weights(folder).values()} == {torch.bfloat16}
    assert all(torch.isfinite(w).all() for w in weights(folder).values())


def test_mixed_block_sizes_and_sources(config, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text('{"prompt": "x", "response": "y y y"}\n' * 3)
    folder = run(
        replace(
            config,
            block_sizes=(2, 5),
            data=(replace(config.data[0], weight=3), Source(str(other), 1)),
        ),
        report=silent,
    )
    assert load(config.model, adapter=str(folder), **PLAIN).block_size == 5
    assert len(log_of(config)[-1]["slots"]) == 6


def test_models_that_rescale_their_logits_are_refused(config, tmp_path):
    loaded = load(config.model, **PLAIN)
    real = loaded.model.forward

    def rescaled(*args, **kwargs):
        found = real(*args, **kwargs)
        found.logits = found.logits / 8
        return found

    loaded.model.forward = rescaled
    with pytest.raises(MarsError, match="rescales its logits"):
        training_model.prepare(loaded, config, IDS)


def test_steps_see_the_mix_in_its_order(config, monkeypatch):
    """Across forwards and steps, and without a word about it in the loop's random state."""
    seen = []
    real = trainer.build_batch

    def spy(examples, cuts, ids, **options):
        seen.extend(examples)
        return real(examples, cuts, ids, **options)

    pools = []
    monkeypatch.setattr(trainer, "build_batch", spy)
    monkeypatch.setattr(train, "Mix", lambda *args: pools.append(args) or Mix(*args))
    run(replace(config, accumulate=2, steps=3, validation=0), report=silent)
    mix = Mix(*pools[0])
    # the loader may be one ahead
    assert seen[:12] == [mix[i] for i in range(12)]
    assert len({tuple(example.ids) for example in seen}) > 3


def test_a_machine_without_plotly_trains(config, monkeypatch):
    monkeypatch.setitem(sys.modules, "mars_core.training.plot", None)
    monkeypatch.delattr("mars_core.training.plot", raising=False)
    said = []
    folder = run(replace(config, steps=1, validation=0), report=said.append)
    assert (folder / "adapter_model.safetensors").is_file()
    assert said[-2:] == ["no plot: plotly is not installed", f"written to {folder}"]
    assert not (config.out / "plot.html").exists()


def test_held_out_losses_are_those_of_an_untouched_model(config):
    """No dropout in them, and a weighted mean over batches of any size."""
    dual = training_model.prepare(load(config.model, **PLAIN), replace(config, dropout=0.5), IDS)
    dual.train()
    for parameter in dual.parameters():
        if parameter.requires_grad:
            parameter.data += 0.05
    examples = [Example([10, 11, *range(30, 33 + i)], 2, False) for i in range(5)]
    whole = held_out_losses(dual, examples, IDS, 5)
    dual.train()
    parts = held_out_losses(dual, examples, IDS, 2)
    for name in ("ar_loss", "mask_loss", "verified"):
        assert parts[name] == pytest.approx(whole[name], abs=1e-5)
    alone = [held_out_losses(dual, [example], IDS, 1)["ar_loss"] for example in examples]
    assert whole["ar_loss"] == pytest.approx(sum(alone) / 5, abs=1e-5)
