"""`mars make`, `distill`, `train` and `evaluate` as a person types them."""

from __future__ import annotations

import gzip
import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from mars_core import cli
from mars_core.cli import train as train_command
from mars_core.models.load import load
from mars_core.training import train
from mars_core.training.settings import Source, TrainConfig, from_mapping, read_yaml, to_yaml
from tests.training.runs import PLAIN


def mars(*arguments):
    return cli.main([str(argument) for argument in arguments])


def given(*arguments):
    """The TrainConfig that `mars train` would run."""
    found = []
    patched = pytest.MonkeyPatch()
    with patched.context() as patch:
        patch.setattr(train, "run", lambda config, **kwargs: found.append(config) or Path("x"))
        assert mars("train", *arguments) == 0
    return found[0]


def test_every_setting_has_a_flag():
    named = {name for names in train_command.HELP.values() for name in names}
    model = {"out", "model", "device", "dtype", "mask_token", "models_dir"}
    assert named | model == {field.name for field in fields(TrainConfig)}
    assert not named & model


def test_flags_become_the_configuration():
    least = given("--data", "a.jsonl", "--out", "o", "--steps", 3)
    assert least == TrainConfig(data=(Source("a.jsonl"),), out=Path("o"), steps=3)
    text = (
        "--data a.jsonl=2 org/name:part=.5 --out o --minutes 2.5 --method full --block-sizes 2 4 8 "
        "--no-random-phase --compile --no-ar-loss --lr 1e-5 --held-out x.jsonl y.jsonl --resume "
        "--alpha 16 --dtype float32 --model org/base --warmup 0.1"
    )
    assert given(*text.split()) == TrainConfig(
        data=(Source("a.jsonl", 2.0), Source("org/name:part", 0.5)),
        out=Path("o"),
        minutes=2.5,
        method="full",
        block_sizes=(2, 4, 8),
        random_phase=False,
        compile=True,
        ar_weight=0.0,
        lr=1e-5,
        held_out=(Path("x.jsonl"), Path("y.jsonl")),
        resume=True,
        alpha=16,
        dtype="float32",
        model="org/base",
        warmup=0.1,
    )


def test_a_run_goes_on_as_it_was_begun(tmp_path):
    """Without naming anything again; and switches of the file can be undone."""
    config = TrainConfig(
        data=(Source("a=b.jsonl"), Source("c.jsonl")), out=tmp_path / "o", steps=7, compile=True
    )
    config.out.mkdir()
    (config.out / "training.yaml").write_text(to_yaml(config))
    assert given("--out", config.out, "--resume") == replace(config, resume=True)
    undone = given("--config", config.out / "training.yaml", "--no-compile", "--no-random-phase")
    assert undone == replace(config, compile=False, random_phase=False)


def test_what_is_made_replaces_files_only(tmp_path, capsys):
    link, target = tmp_path / "link.jsonl", tmp_path / "target.jsonl"
    link.symlink_to(target)
    assert mars("make", "everyday", link, "--n", 2) == 0
    assert link.is_symlink()
    assert len(target.read_text().splitlines()) == 2
    capsys.readouterr()
    for out in (tmp_path, "/dev/null", ""):
        assert mars("make", "everyday", out, "--n", 2) == 2
        assert "is no file" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.jsonl", "target.jsonl"]


def test_flags_win_over_the_file(tmp_path):
    config = TrainConfig(data=(Source("a.jsonl"),), out=tmp_path / "o", steps=7, rank=8, lr=1e-3)
    file = tmp_path / "c.yaml"
    file.write_text(to_yaml(config))
    assert given("--config", file) == config
    assert given("--config", file, "--rank", 4) == replace(config, rank=4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--out o --steps 3", "data is missing"),
        ("--data a.jsonl --steps 3", "out is missing"),
        ("--data a.jsonl --out o", "how long"),
        ("--data a.jsonl --out o --steps 3 --config nowhere.yaml", "nowhere.yaml cannot be read"),
        ("--data a.jsonl --out {tmp} --steps 3 --model nowhere", "unknown model"),
        ("--recipe gpu --out o", "give minutes"),
        (
            "--data missing.jsonl --out {tmp} --steps 3 --max-length 99 --model {base}",
            "neither a file here",
        ),
        (
            "--data " + "x" * 300 + ".jsonl --out {tmp} --steps 3 --max-length 99 --model {base}",
            "neither a file here",
        ),
        ("--data a.jsonl --out {tmp} --steps 3 --dtype float64", "bfloat16 or float32"),
        ("--out {tmp} --resume", "training.yaml cannot be read"),
        ("--recipe cpu --minutes 3 --out o --data a.jsonl", "drop it"),
    ],
)
def test_bad_input_is_one_line(arguments, words, base, capsys, tmp_path):
    assert mars("train", *arguments.format(tmp=tmp_path / "run", base=base).split()) == 2
    *before, error = capsys.readouterr().err.splitlines()
    assert words in error
    assert before in ([], ["loading ..."])


def test_from_prompts_to_a_model_that_answers(base, tmp_path, capsys):
    """make, distill, train, generate and evaluate, one after the other."""
    prompts, answers, out = (tmp_path / n for n in ("prompts.jsonl", "answers.jsonl", "run"))
    assert mars("make", "everyday", prompts, "--n", 24) == 0
    common = ("--device", "cpu", "--dtype", "float32", "--model", base)
    limits = ("--max-new-tokens", 8, "--batch-size", 8, "--processes", 1)
    assert mars("distill", prompts, answers, *common, *limits, "--limit", 16) == 0
    shown = capsys.readouterr().err.splitlines()[-1]
    assert 16 <= int(shown.split()[1]) < 24
    assert mars("distill", prompts, answers, *common, *limits) == 0
    shown = capsys.readouterr().err
    assert "answered 24 of 24" in shown
    rows = [json.loads(line) for line in answers.read_text().splitlines()]
    assert rows

    assert mars("make", "arithmetic", tmp_path / "sums.jsonl.gz", "--n", 5, "--seed", 1) == 0
    with gzip.open(tmp_path / "sums.jsonl.gz") as file:
        assert len(file.readlines()) == 5
    data = (f"{answers}=1", f"{tmp_path / 'sums.jsonl.gz'}=1")
    size = ("--steps", 2, "--batch-size", 4, "--rank", 2, "--evaluate-prompts", 1)
    room = ("--max-length", 200, "--evaluate-tokens", 4, "--no-ar-loss")
    capsys.readouterr()
    assert mars("train", "--data", *data, "--out", out, *common, *size, *room) == 0
    assert capsys.readouterr().out.strip() == str(out / "adapter")
    saved = from_mapping(read_yaml(out / "training.yaml"))
    assert (saved.rank, saved.ar_weight, saved.mask_weight) == (2, 0, 1)
    assert load(str(base), adapter=str(out / "adapter"), **PLAIN).trained

    adapted = (*common, "--adapter", out / "adapter")
    assert mars("generate", "hello", *adapted, "--max-new-tokens", 4) == 0
    assert "MARS-trained" in capsys.readouterr().err
    quick = ("--n", 3, "--max-new-tokens", 4)
    assert mars("evaluate", "arithmetic", *adapted, *quick) == 0
    assert "n = 3" in capsys.readouterr().out
    assert mars("evaluate", "arithmetic", *adapted, *quick, "--mode", "tau", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["about"]["settings"]["decode"]["mode"] == "tau"
    assert len(result["outcomes"]) == 3
