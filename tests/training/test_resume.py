"""Runs that are killed, fail, cannot begin, go on, or are shared by processes."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mars_core.errors import MarsError
from mars_core.training import model as training_model
from mars_core.training import train
from mars_core.training.checkpoint import Checkpoints, alone
from mars_core.training.settings import Source, to_yaml
from mars_core.training.train import run
from tests.tiny import tiny_checkpoint, tiny_llama
from tests.training.runs import (
    Killed,
    Ticks,
    kill_at,
    lines,
    log_of,
    problem,
    same,
    silent,
    weights,
)


@pytest.mark.parametrize("budget", [{"steps": 8}, {"steps": None, "minutes": 8.5 / 60}])
def test_a_killed_and_resumed_run_equals_an_unbroken_one(config, budget):
    """Bit for bit, with dropout, so that the random state matters, and by steps or by time.

    The clock gains a second per step. The killed run has a checkpoint of step 3, had made a step
    more, and goes on hours later.
    """
    settings = replace(
        config, dropout=0.2, checkpoint_minutes=2.5 / 60, log_steps=1, copies=2, **budget
    )
    whole = replace(settings, out=config.out.with_name("whole"))
    unbroken = run(whole, report=silent, clock=Ticks())
    with pytest.raises(Killed):
        run(settings, report=kill_at(5), clock=Ticks())
    assert Checkpoints(settings.out / "checkpoints").last().name == "checkpoint-3"
    assert not (settings.out / "adapter").exists()
    torch.manual_seed(99)
    resumed = run(replace(settings, resume=True), report=silent, clock=Ticks(10**4))
    assert same(weights(resumed), weights(unbroken))
    ends = [Checkpoints(c.out / "checkpoints").last() for c in (settings, whole)]
    assert same(*map(weights, ends))  # in all their digits
    assert log_of(settings) == log_of(whole)
    assert log_of(settings)[-1]["step"] >= 8
    optimizers = [
        torch.load(Checkpoints(c.out / "checkpoints").last() / "optimizer.pt")
        for c in (settings, whole)
    ]
    for one, other in zip(*(o["state"].values() for o in optimizers), strict=True):
        assert torch.equal(one["exp_avg_sq"], other["exp_avg_sq"])


def break_loss(monkeypatch, at):
    """The loss is not a number from the `at`-th forward on; it is made in two parts each."""
    real, calls = training_model.row_losses, []

    def broken(*args, **options):
        calls.append(1)
        found = real(*args, **options)
        return replace(found, loss=found.loss * float("nan")) if len(calls) >= 2 * at else found

    monkeypatch.setattr(training_model, "row_losses", broken)


def test_a_loss_that_is_no_number_ends_the_run(config, monkeypatch):
    settings = replace(config, validation=0, checkpoint_minutes=1.5 / 60)
    break_loss(monkeypatch, at=4)
    with pytest.raises(
        MarsError, match=r"not a number in step 4: .*checkpoint-2 is intact"
    ) as caught:
        run(settings, report=silent, clock=Ticks())
    assert "\n" not in str(caught.value)
    last = Checkpoints(settings.out / "checkpoints").last()
    assert all(torch.isfinite(w).all() for w in weights(last).values())
    monkeypatch.undo()
    assert run(replace(settings, resume=True), report=silent, clock=Ticks()).is_dir()


@pytest.mark.parametrize("where", ["optimizer", "weights", "export"])
def test_a_full_disk_leaves_the_last_checkpoint(config, monkeypatch, where):
    """Step 2's checkpoint is whole; then the disk is full in the middle of writing."""
    settings = replace(config, checkpoint_minutes=1.5 / 60)
    full = OSError(errno.ENOSPC, "No space left on device")
    calls = []

    def failing(real, after):
        def write(*args, **kwargs):
            calls.append(1)
            if len(calls) > after:
                raise full
            return real(*args, **kwargs)

        return write

    if where == "optimizer":  # three files a checkpoint
        monkeypatch.setattr(torch, "save", failing(torch.save, after=3))
    elif where == "weights":
        module = sys.modules["mars_core.training.trainer"]
        monkeypatch.setattr(module, "save_weights", failing(module.save_weights, after=1))
    else:
        monkeypatch.setattr(train, "save_weights", failing(train.save_weights, after=0))
    with pytest.raises(MarsError, match="the disk is full") as caught:
        run(settings, report=silent, clock=Ticks())
    monkeypatch.undo()
    assert "\n" not in str(caught.value)
    last = Checkpoints(settings.out / "checkpoints").last()
    assert str(last) in str(caught.value)
    assert last.name == ("checkpoint-6" if where == "export" else "checkpoint-2")
    assert not list(settings.out.rglob("*draft*"))
    resumed = run(replace(settings, resume=True), report=silent, clock=Ticks())
    whole = run(replace(settings, out=config.out.with_name("whole")), report=silent, clock=Ticks())
    assert same(weights(resumed), weights(whole))


def test_runs_that_cannot_begin(config, tmp_path, base):
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    assert "cannot be written" in problem(config, out=nowhere / "run")
    assert "do not fit the model's context of 256" in problem(config, max_length=253)
    assert "flex attention" in problem(config, attention="flex")
    plain = tiny_checkpoint(tmp_path / "plain", tiny_llama(dtype=torch.float32))
    assert "no mask token; name one with --mask-token" in problem(config, model=str(plain))
    assert "nothing to learn from" in problem(config, max_length=16)
    held = tmp_path / "held.jsonl"
    held.write_text("".join(json.dumps({"prompt": row["prompt"]}) + "\n" for row in lines(60)))
    assert "60 overlap an evaluation prompt" in problem(config, held_out=(held,))
    assert "unknown model" in problem(config, model="nothing")
    with alone(config.out):
        assert "another run is writing" in problem(config)


def test_weights_of_an_earlier_run_are_not_replaced(config):
    """Even where its checkpoints were removed to make room."""
    folder = run(config, report=silent)
    shutil.rmtree(config.out / "checkpoints")
    (folder / "NOTES.txt").write_text("mine")
    assert "holds a run already" in problem(config)
    assert (folder / "NOTES.txt").read_text() == "mine"


def test_a_first_attempt_that_failed_blocks_nothing(config):
    problem(config, data=(Source("nowhere.jsonl"),))
    assert run(replace(config, resume=True), report=silent).exists()


@pytest.mark.parametrize("name", ["optimizer.pt", "adapter_model.safetensors", "mars_state.json"])
def test_a_damaged_checkpoint_is_named(config, name):
    run(config, report=silent)
    last = Checkpoints(config.out / "checkpoints").last()
    (last / name).write_bytes(b"")
    said = problem(config, resume=True, steps=8)
    assert f"{last} is damaged" in said


def test_a_run_goes_on_only_as_it_began(config, tmp_path):
    run(config, report=silent)
    assert "holds a run already" in problem(config)
    assert "another lr (0.01)" in problem(config, resume=True, lr=1e-3)
    config.data[0]
    other = tmp_path / "chats.jsonl"
    other.write_text(Path(config.data[0].name).read_text().replace("sand", "land"))
    assert "another data" in problem(config, resume=True, data=(Source(str(other)),))
    # the same name, other rows
    again = replace(config, out=tmp_path / "again", data=(Source(str(other)),))
    run(again, report=silent)
    other.write_text(Path(config.data[0].name).read_text())
    assert "the training data is not what" in problem(again, resume=True)
    # its end again changes nothing, moved or not
    before = weights(config.out / "adapter")
    moved = replace(config, out=tmp_path / "moved", log_steps=1, resume=True)
    shutil.copytree(config.out, moved.out)
    assert same(weights(run(moved, report=silent)), before)
    assert log_of(moved) == log_of(config)
    # a finished run may be given more steps
    run(replace(config, resume=True, steps=8), report=silent)
    assert log_of(config)[-1]["step"] == 8


def test_two_processes_make_the_run_of_one(config, tmp_path):
    """Under `accelerate launch`, up to rounding; also cut into checkpoints by an agreed clock.

    `--multi_gpu` is its word for several processes: with `--cpu` it starts one (or asks for MPI).
    """
    run(config, report=silent)
    shared = replace(config, out=tmp_path / "shared", checkpoint_minutes=0.01)
    (tmp_path / "run.yaml").write_text(to_yaml(shared))
    launch = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    launch += ["--main_process_port", "0"]  # any free one
    command = ["-m", "mars_core.cli", "train", "--config", str(tmp_path / "run.yaml")]
    done = subprocess.run(
        [sys.executable, *launch, *command],
        capture_output=True,
        text=True,
        cwd=Path(train.__file__).parents[2],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(train.__file__).parents[2]),
            "OMP_NUM_THREADS": "1",
        },
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("written to") == 1
    assert "FutureWarning" not in done.stderr
    together = weights(Checkpoints(shared.out / "checkpoints").last())
    for name, wanted in weights(Checkpoints(config.out / "checkpoints").last()).items():
        assert torch.allclose(together[name], wanted, atol=1e-4), name
    entries = [e for e in log_of(shared) if e["kind"] == "train"]
    wanted = [e for e in log_of(config) if e["kind"] == "train"]
    assert entries[0]["mask_loss"] == pytest.approx(wanted[0]["mask_loss"], abs=1e-4)
    assert entries[0]["slots"][2]["loss"] == pytest.approx(wanted[0]["slots"][2]["loss"], abs=1e-3)
    last = Checkpoints(shared.out / "checkpoints").last()
    assert sorted(p.name for p in last.glob("rng_state*")) == ["rng_state_0.pth", "rng_state_1.pth"]
