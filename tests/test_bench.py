"""The benchmark runs, agrees with itself, and never asserts a time."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from mars_core import cli
from mars_core.errors import MarsError
from mars_core.evaluation import bench
from mars_core.evaluation.settings import SpeedConfig
from mars_core.models.load import load
from tests.tiny import tiny_checkpoint, tiny_llama

PROMPTS = SpeedConfig(sets=("everyday",), taus=(0.5,), max_new_tokens=16, limit=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    model = tiny_llama(seed=5, sharpen=6)
    return str(tiny_checkpoint(tmp_path_factory.mktemp("bench") / "tiny", model, mask=True))


def test_bench_measures_every_row_and_compares_the_same_text(folder):
    result = bench.bench(
        load(folder, device="cpu", dtype="float32"), repeats=3, new_tokens=16, prompts=PROMPTS
    )
    assert list(result.forward_ms) == list(bench.ROWS)
    assert result.same_text
    assert all(t.low <= t.median <= t.high for t in result.forward_ms.values())
    shown = bench.table(result)
    assert "x one row" in shown
    assert "mars, tau 0.5" in shown
    assert f"{result.speed_up.median:.2f} [" in shown
    assert json.loads(json.dumps(asdict(result)))["speed_up"]["median"] == result.speed_up.median


def test_repeats_are_interleaved_and_the_first_round_is_not_counted(folder):
    order = []
    loaded = load(folder, device="cpu", dtype="float32")
    times = bench.interleave(
        loaded, {name: lambda name=name: order.append(name) for name in "ab"}, repeats=3
    )
    assert order == ["a", "b"] * 4
    assert {name: len(samples) for name, samples in times.items()} == {"a": 3, "b": 3}


def test_summary():
    assert bench.summary([4.0, 1.0, 3.0, 2.0, 5.0]) == bench.Timing(3.0, 2.0, 4.0)


def test_too_little_to_measure_is_one_line(folder, capsys):
    loaded = load(folder, device="cpu", dtype="float32")
    with pytest.raises(MarsError, match="at least 3"):
        bench.bench(loaded, repeats=1, new_tokens=16, prompts=PROMPTS)
    assert cli.main(["bench", "--model", folder, "--max-new-tokens", "5000"]) == 2
    assert "context of 256" in capsys.readouterr().err
