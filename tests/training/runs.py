"""What tests of training runs share: data, clocks, ways to die, and how to compare two runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from mars_core.errors import MarsError
from mars_core.training.progress import RunLog
from mars_core.training.train import run

PLAIN = {"device": "cpu", "dtype": "float32", "packing": False}


def lines(count):
    for i in range(count):
        number = ("one", "two", "three", "four", "five")[i % 5]
        yield {
            "prompt": f"Say {number} {i % 7}",
            "response": f"the sand is in the sun, {number} and {number} " * (1 + i % 3),
            "finished": i % 4 != 0,
        }


class Ticks:
    """A clock that is a second later at every reading."""

    def __init__(self, start=0.0):
        self.now = start

    def __call__(self):
        self.now += 1
        return self.now


class Killed(BaseException):
    """Ends a run as a signal would, at whatever it was doing."""


def kill_at(step):
    def report(text):
        if text.startswith(f"step {step},"):
            raise Killed

    return report


def silent(text):
    pass


def weights(folder):
    found = {}
    for path in folder.glob("*.safetensors"):
        found |= load_file(path)
    return found


def same(left, right):
    assert left.keys() == right.keys()
    return all(torch.equal(left[name], right[name]) for name in left)


def log_of(config):
    timed = ("tokens_per_second", "minutes")
    entries = RunLog(config.out / "log.jsonl").entries()
    return [{k: v for k, v in entry.items() if k not in timed} for entry in entries]


def refusal(function, *args, **kwargs):
    """The one line of the MarsError that a call ends with."""
    with pytest.raises(MarsError) as caught:
        function(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def problem(config, **changes):
    return refusal(run, replace(config, **changes), report=silent)
