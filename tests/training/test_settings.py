"""Configurations from YAML and flags, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mars_core.training.settings import (
    MAY_CHANGE,
    Source,
    TrainConfig,
    from_mapping,
    read_yaml,
    to_yaml,
)
from tests.training.runs import refusal

CONFIG = TrainConfig(data=(Source("chats.jsonl"),), out=Path("run"), minutes=8)


def test_yaml_gives_back_what_was_written(tmp_path):
    config = replace(
        CONFIG,
        data=(Source("a=b.jsonl", 0.5), Source("org/chats:part", 2)),
        block_sizes=(2, 4, 8),
        held_out=(Path("x.jsonl"), Path("y.jsonl")),
        lr=1e-5,
        models_dir=Path("models"),
        resume=True,
    )
    (tmp_path / "c.yaml").write_text(to_yaml(config))
    assert from_mapping(read_yaml(tmp_path / "c.yaml")) == config


def test_names_with_an_equals_sign_come_back(tmp_path):
    config = replace(CONFIG, data=(Source("a=2"), Source("b=c.jsonl")))
    (tmp_path / "c.yaml").write_text(to_yaml(config))
    assert from_mapping(read_yaml(tmp_path / "c.yaml")) == config


def test_what_a_person_writes_in_yaml(tmp_path):
    (tmp_path / "c.yaml").write_text(
        "data: [chats.jsonl=3, {name: more.jsonl, weight: 1}]\n"
        "out: run\n"
        "block-sizes: 8\n"
        "lr: 2e-3\n"  # YAML takes this for text
        "minutes: 5\n"
        "random-phase: false\n"
        "held_out: gsm.jsonl\n"
    )
    found = from_mapping(read_yaml(tmp_path / "c.yaml"))
    assert found.data == (Source("chats.jsonl", 3.0), Source("more.jsonl", 1))
    assert (found.lr, found.block_sizes, found.minutes) == (0.002, (8,), 5)
    assert (found.random_phase, found.held_out) == (False, (Path("gsm.jsonl"),))
    assert from_mapping({"data": "x.jsonl", "out": "o", "steps": 3}).data == (Source("x.jsonl"),)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"learning_rate": 1}, "unknown setting 'learning_rate'"),
        ({"out": None}, "the setting out is missing"),
        ({"data": []}, "the setting data is missing"),
        ({"data": [3]}, "a data source is NAME"),
        ({"data": "x=y"}, "NAME=WEIGHT wants a number"),
        ({"data": "=3"}, "has no name"),
        ({"data": ["a=1", "b"]}, "every data source a weight"),
        ({"data": "a=0"}, "weight of a"),
        ({"lr": "fast"}, "lr is 'fast': it must be a number"),
        ({"lr": -1}, "learning rate"),
        ({"model": 3}, "model is '3': it must be text"),
        ({"resume": "yes"}, "resume is 'yes': it must be true or false"),
        ({"steps": 1.5}, "steps is 1.5: it must be a whole number"),
        ({"steps": None, "minutes": None}, "how long to train"),
        ({"minutes": float("nan")}, "minutes"),
        ({"block_sizes": []}, "block sizes are missing"),
        ({"block_sizes": [4, 65]}, "block size is 65"),
        ({"method": "qlora"}, "method is 'qlora': choose one of lora, full"),
        ({"attention": "flash"}, "attention is 'flash'"),
        ({"ar_weight": 0, "mask_weight": 0}, "nothing to learn"),
        ({"ar_weight": 0, "unlikelihood": 1}, "unlikelihood go with L_AR"),
        ({"ar_weight": 0, "mask_labels": "ar"}, "mask labels of ar go with L_AR"),
        ({"mask_labels": "own"}, "mask labels is 'own': choose one of data, ar"),
        ({"batch_size": 9, "accumulate": 2}, "cannot be split into 2"),
        ({"validation": 0.9}, "validation"),
        ({"batch_size": None}, "batch_size has no value"),
        ({"data": [{"name": [1]}]}, "a data source is"),
    ],
)
def test_bad_settings_are_one_line(values, words):
    good = {"data": "chats.jsonl", "out": "run", "steps": 3}
    assert words in refusal(from_mapping, {**good, **values})


@pytest.mark.parametrize("text", ["- a\n", "a: [", "3: x\n", "", "[" * 3000])
def test_a_file_that_holds_no_settings(tmp_path, text):
    (tmp_path / "c.yaml").write_text(text)
    assert "c.yaml" in refusal(read_yaml, tmp_path / "c.yaml")
    assert "nothing.yaml cannot be read" in refusal(read_yaml, tmp_path / "nothing.yaml")


def test_what_a_resumed_run_may_change():
    changes = {"minutes": 20.0, "steps": 9, "resume": True, "checkpoint_minutes": 1.0}
    replace(CONFIG, out=Path("elsewhere"), **changes).check_goes_on(CONFIG)
    other = replace(CONFIG, seed=1, lr=1e-3)
    assert "run was begun with another lr (None)" in refusal(other.check_goes_on, CONFIG)
    assert "another seed (0)" in refusal(other.check_goes_on, CONFIG, "lr")
    other.check_goes_on(CONFIG, "lr", "seed")
    assert set(TrainConfig.__dataclass_fields__) >= MAY_CHANGE


def test_the_learning_rate_depends_on_the_method():
    assert CONFIG.peak_lr > replace(CONFIG, method="full").peak_lr
    assert replace(CONFIG, lr=3e-4).peak_lr == 3e-4
    assert replace(CONFIG, block_sizes=(2, 8, 4)).block_size == 8
