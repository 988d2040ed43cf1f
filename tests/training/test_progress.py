"""Budget, schedule, checkpoints' folders, log, plots and held-out figures, each by itself."""

from __future__ import annotations

import errno

import pytest

from mars_core.errors import MarsError
from mars_core.training import plot
from mars_core.training.budget import FIRST_LR, Budget, lr_share
from mars_core.training.checkpoint import KEEP, Checkpoints, replacing
from mars_core.training.evaluate import distinct_prompts, right_runs
from mars_core.training.objective import Example
from mars_core.training.progress import RunLog, line, slot_entries


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_progress_is_the_larger_share():
    clock = Clock()
    budget = Budget(steps=10, minutes=2, clock=clock)
    budget.start()
    assert budget.progress(0) == 0
    assert budget.progress(4) == 0.4
    clock.now += 60
    assert budget.progress(4) == 0.4  # the clock is read once a step
    assert budget.read() == 60
    assert budget.progress(4) == 0.5
    clock.now += 600
    budget.read()
    assert budget.progress(4) == 1


def test_a_budget_goes_on_where_it_was():
    clock = Clock()
    budget = Budget(steps=None, minutes=2, clock=clock, agree=lambda seconds: seconds + 0.5)
    budget.start(spent=30)
    clock.now += 30
    assert budget.read() == 60.5
    assert budget.progress(10**6) == 60.5 / 120
    assert budget.max_steps > 10**6
    assert Budget(7, None).max_steps == 7


def test_the_learning_rate_rises_then_falls_to_the_floor():
    rates = [lr_share(i / 100, warmup=0.1, floor=0.05) for i in range(101)]
    assert rates[0] == FIRST_LR
    assert rates[5] == pytest.approx(0.55)
    assert rates[10] == 1
    assert rates[55] == pytest.approx((1 + 0.05) / 2)
    assert rates[100] == pytest.approx(0.05)
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert lr_share(0, warmup=0, floor=0.1) == 1
    assert lr_share(1, warmup=1, floor=0.1) == pytest.approx(0.1)


def write(checkpoints, step):
    draft = checkpoints.draft / f"checkpoint-{step}"
    draft.mkdir(parents=True)
    (draft / "weights").write_text(str(step))


def test_checkpoints_count_when_they_are_whole(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.last() is None
    write(checkpoints, 9)
    assert checkpoints.last() is None
    checkpoints.publish(9)
    for step in (10, 100, 11):
        write(checkpoints, step)
        checkpoints.publish(step)
    # by step, not by name
    assert [path.name for path in checkpoints.all()] == ["checkpoint-11", "checkpoint-100"]
    assert len(checkpoints.all()) == KEEP
    write(checkpoints, 12)
    error = checkpoints.failed(OSError(errno.ENOSPC, "No space left on device"))
    assert "the disk is full" in str(error)
    assert f"{checkpoints.last()} is intact" in str(error)
    assert not checkpoints.draft.exists()
    write(checkpoints, 100)
    (checkpoints.draft / "checkpoint-100" / "weights").write_text("again")
    checkpoints.publish(100)
    assert (checkpoints.last() / "weights").read_text() == "again"


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    folder = tmp_path / "adapter"
    for text in ("old", "new"):
        with replacing(folder) as draft:
            (draft / text).write_text(text)
    assert [path.name for path in folder.iterdir()] == ["new"]

    def fail():
        with replacing(folder, lambda: "; the rest is fine") as draft:
            (draft / "x").write_text("x")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(MarsError, match="adapter could not be written: the disk is full; the rest"):
        fail()
    assert [path.name for path in tmp_path.rglob("*")] == ["adapter", "new"]


def entry(kind, step, **more):
    slots = slot_entries([[4, 2, 1, 1, 8.0], [0, 0, 0, 0, 0.0], [4, 1, 0, 0, 10.0]])
    values = {"kind": kind, "step": step, "minutes": step / 10, "slots": slots}
    return {**values, "ar_loss": 1.5, "mask_loss": 2.5, **more}


TRAINED = [entry("train", step, lr=1e-3, tokens_per_second=80.0) for step in (10, 20, 30)]
HELD_OUT = [entry("evaluation", step, tokens_per_forward=1.2 + step / 100) for step in (0, 20)]


def test_shares_of_slots():
    first, unseen, last = slot_entries([[4, 2, 1, 1, 8.0], [0, 0, 0, 0, 0.0], [4, 1, 0, 0, 10.0]])
    assert first == {"loss": 2.0, "right": 0.5, "sure": 0.25, "right_when_sure": 1.0}
    assert set(unseen.values()) == {None}
    assert last["right_when_sure"] is None


def test_a_log_forgets_the_steps_that_are_made_again(tmp_path):
    log = RunLog(tmp_path / "log.jsonl")
    assert log.entries() == []
    for one in TRAINED:
        log.append(one)
    with log.path.open("a") as file:
        file.write('{"kind": "train", "st')
    assert log.entries() == TRAINED
    log.append({})  # on the line that was cut off: neither is an entry
    assert log.entries() == TRAINED
    log.rewind(20)
    assert log.entries() == TRAINED[:2]
    log.append(TRAINED[2])
    assert log.entries() == TRAINED
    with pytest.raises(MarsError, match="cannot be written"):
        RunLog(tmp_path / "nowhere" / "log.jsonl").append(TRAINED[0])


def test_lines_for_a_person():
    assert line(TRAINED[0]) == (
        "step 10, 1.0 min, 80 tok/s, lr 1.0e-03, ar loss 1.500, mask loss 2.500, right % 50 - 25"
    )
    assert line({**HELD_OUT[1], "ar_loss": None}) == (
        "held out: step 20, 2.0 min, mask loss 2.500, right % 50 - 25, 1.40 tokens per forward"
    )


def test_the_figure_shows_the_log():
    found = plot.figure([HELD_OUT[0], *TRAINED, HELD_OUT[1]])
    lines = {(trace.name, trace.xaxis or "x"): trace for trace in found.data}
    assert list(lines["AR, training", "x"].x) == [1.0, 2.0, 3.0]
    assert list(lines["masks, held out", "x"].y) == [2.5, 2.5]
    assert list(lines["next token", "x2"].y) == [50, 50]
    assert list(lines["mask 2", "x3"].y) == [0, 0]
    assert list(lines["tokens per forward", "x4"].y) == [1.2, 1.4]
    assert not any(name == "mask 1" for name, _ in lines)  # nothing was counted there
    assert len(plot.figure([]).data) == 0
    assert len(plot.figure(TRAINED).data) == 2


def test_runs_of_right_masks_are_counted_in_whole_blocks():
    slots = [0, 0, -1, 1, 1, 2, 3, 1, 2, 3, 1, 2]
    right = [1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1]
    assert right_runs(slots, list(map(bool, right)), 3) == [2, 3]
    assert right_runs([1, 1, 1], [True, False, True], 1) == [1, 0, 1]


def test_prompts_to_decode_are_different():
    examples = [Example([1, 2, i], 2, True) for i in range(3)] + [Example([5, 6], 1, True)]
    assert distinct_prompts(examples, 5) == [[1, 2], [5]]
    assert distinct_prompts(examples, 1) == [[1, 2]]
