"""The README's Python examples run as they are printed."""

import re
import shlex
from pathlib import Path

import pytest

from mars_core.cli import build_parser
from mars_core.paths import assets_dir
from mars_core.ui.demo import build_demo, launch
from tests.ui.scripted import EOS, ScriptedEngine, ready

README = Path(assets_dir()).parent / "README.md"
ADDRESS = "http://127.0.0.1:7860"


def example(mark):
    """The one Python example that contains `mark`."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = [block for block in blocks if mark in block]
    return found


def commands():
    """Every `mars` command that stands in a block of them, continued lines joined."""
    text = README.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = [b for b in text.split("\n```")[1::2] if b.split()[0] in ("mars", "pip")]
    pattern = re.compile(r"^(?:mars|.*-m mars_core\.cli) (.*)$", re.MULTILINE)
    return [command for block in blocks for command in pattern.findall(block)]


@pytest.mark.parametrize("command", commands())
def test_commands_are_ones(command):
    words = shlex.split(command.partition(" > ")[0])
    args = build_parser().parse_args(words)
    assert callable(args.run)


def test_the_client_example(capsys):
    demo = build_demo(ready(ScriptedEngine([["Hi", " there"], ["!", EOS]])))
    address = launch(demo, "127.0.0.1", None)
    code = example("gradio_client")
    assert ADDRESS in code
    exec(compile(code.replace(ADDRESS, address), str(README), "exec"), {})
    demo.close()
    assert "\nHi there! 4 2\n" in capsys.readouterr().out


@pytest.mark.model
def test_the_python_example(capsys):
    exec(compile(example("mars_core.engine"), str(README), "exec"), {})
    first, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("1 ['")
