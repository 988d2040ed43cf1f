"""The command line as a person or a script uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from mars_core import cli, terminal, trace
from mars_core.cli import arguments
from mars_core.config import DecodeConfig
from tests.tiny import tiny_checkpoint, tiny_llama


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    model = tiny_llama(seed=5, sharpen=6)
    return str(tiny_checkpoint(tmp_path_factory.mktemp("cli") / "tiny-model", model, mask=True))


def mars(*arguments):
    return cli.main([str(a) for a in arguments])


def test_generate_prints_the_text_and_nothing_else(folder, capsys):
    assert mars("generate", "hello", "--model", folder, "--max-new-tokens", 20, "--tau", 0.3) == 0
    plain = capsys.readouterr()
    assert mars(
        "generate", "hello", "--model", folder, "--max-new-tokens", 20, "--tau", 0.3, "--json"
    ) == 0  # fmt: skip
    records = [trace.parse_record(line) for line in capsys.readouterr().out.splitlines()]
    assert plain.out == terminal.printable(records[-1].text) + "\n"
    assert "20 tokens in" in plain.err
    assert "tiny-model, MARS-trained" in plain.err


def test_json_ends_with_done(folder, capsys):
    mars("generate", "hello", "--model", folder, "--mode", "one", "--max-new-tokens", 9, "--json")
    lines = capsys.readouterr().out.splitlines()
    assert json.loads(lines[0])["type"] == "header"
    done = json.loads(lines[-1])
    assert (done["type"], done["tokens"], done["forwards"]) == ("done", 9, 9)
    assert done["text"]


def test_every_setting_has_a_flag_with_the_configs_default():
    args = cli.build_parser().parse_args(["generate", "x"])
    assert arguments.config_from(args) == DecodeConfig()
    flags = "--stop a --stop b --metric margin --use-last-mask --seed 3 --top-p .5"
    args = cli.build_parser().parse_args(["generate", "x", *flags.split()])
    config = arguments.config_from(args)
    assert (config.stop, config.metric, config.slots, config.seed) == (("a", "b"), "margin", 5, 3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generate", "hi", "--tau", "1.5"], "tau"),
        (["generate", "hi", "--block-size", "0"], "block size"),
        (["generate", "hi", "--model", "no such model"], "smollm2-135m"),
        (["fetch", "nothing"], "smollm2-135m"),
        (["generate", "hi\udcff"], "surrogate"),
        (["generate", "hi", "--system", "\udcff"], "system message"),
        (["generate", "hi", "--stop", "\udcff"], "stop string"),
        (["generate", ""], "empty"),
        (["generate", "hi", "--model", "x" * 5000], "cannot be opened"),
        (["generate", "hi", "--model", "~nosuchuser/m"], "user"),
        (["generate", "hi", "--model", ""], "smollm2-135m"),
        (["generate", "hi", "--models-dir", "~nosuchuser"], "user"),
    ],
)
def test_bad_input_is_one_line_on_stderr(arguments, words, capsys):
    assert mars(*arguments) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x" * 5000], "tokens but the model's context is 256"),
        (["hi", "--adapter", ""], "neither a folder nor a hub id"),
        (["hi", "--adapter", "y" * 5000], "cannot be opened"),
        (["hi", "--mask-token", "9" * 5000], "no token"),
        (["hi", "--mask-token", "999999"], "outside"),
    ],
)
def test_what_only_the_model_can_refuse(folder, arguments, words, capsys):
    """One line after the loading message, and no half of a trace on stdout."""
    assert mars("generate", *arguments, "--model", folder, "--json") == 2
    captured = capsys.readouterr()
    complaint = [line for line in captured.err.splitlines() if line != "loading ..."]
    assert len(complaint) == 1
    assert complaint[0].startswith("mars: ")
    assert words in complaint[0]
    assert captured.out == ""


@pytest.mark.parametrize(
    ("environment", "target", "code"),
    [
        ({"PYTHONIOENCODING": "ascii"}, "/dev/null", 0),
        ({}, "/dev/full", 2),
    ],
)
def test_odd_terminals(folder, environment, target, code):
    command = [sys.executable, "-m", "mars_core.cli", "generate", "é🙂", "--model", folder]
    with open(target, "w") as output:
        done = subprocess.run(
            [*command, "--max-new-tokens", "8", "--temperature", "1.5"],
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_error(folder):
    command = [sys.executable, "-m", "mars_core.cli", "generate", "hello", "--json"]
    command += ["--model", folder, "--max-new-tokens", "150"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read().decode()
        assert process.wait(timeout=120) == 0
    assert "Traceback" not in errors
    assert "BrokenPipe" not in errors


def test_help_needs_no_torch():
    code = (
        "import sys; from mars_core.cli import build_parser; build_parser().format_help(); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- the terminal's view ------------------------------------------------------------------------


def step(*pieces, forward=1):
    return trace.StepRecord(
        type="step",
        row=0,
        forward=forward,
        mode="tau",
        tau=0.5,
        fed=1,
        position=0,
        ms=1.0,
        slots=(),
        tokens=tuple(
            trace.TokenRecord(id=i, text=text, source="slot", slot=i)
            for i, text in enumerate(pieces)
        ),
    )


def test_passes_of_several_tokens_are_tinted_and_neighbours_differ():
    first = terminal.step_text(step("a", "b"), colour=True)
    second = terminal.step_text(step("a", "b", forward=2), colour=True)
    assert first != second
    assert first.startswith("\x1b[30;48;5;")
    assert first.endswith("ab\x1b[0m")
    assert terminal.step_text(step("a"), colour=True) == "a"
    assert terminal.step_text(step("a", "b"), colour=False) == "ab"


def test_a_tint_does_not_run_over_a_line_end():
    text = terminal.step_text(step("a\n", "\nb"), colour=True)
    assert [line.endswith("\x1b[0m") or line == "" for line in text.split("\n")] == [True] * 3


def test_model_text_cannot_steer_the_terminal():
    assert terminal.printable("a\x1b[2Jb\r\tc\n") == "a\\u001b[2Jb\\u000d\tc\n"
    assert terminal.printable("\x9b2J\u202e\u2066é🙂") == "\\u009b2J\\u202e\\u2066é🙂"
