"""Imports run one way, and some files stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mars_core

ROOT = Path(mars_core.__file__).parent
# each layer may import from those before it and from itself
LAYERS = [
    {"errors", "config", "paths"},
    {"events", "control", "stopwatch", "chromium"},
    {"shared_control"},
    {"trace"},
    {"model_thread"},
    {
        "acceptance",
        "packing",
        "trunk",
        "compiled",
        "cache",
        "window",
        "drafting",
        "text",
        "chat",
        "sampling",
        "terminal",
        "row",
        "pacing",
    },
    {"decode", "composition", "reference", "models", "about"},
    {"engine", "baselines", "answers", "batch", "recorder", "batch_figures"},
    {"race"},
    {"export", "switching", "forked_engine"},
    {"training", "evaluation"},
    {"ui"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
NO_TORCH = (
    "events",
    "config",
    "control",
    "acceptance",
    "drafting",
    "pacing",
    "trace",
    "batch_figures",
    "stopwatch",
    "terminal",
    "model_thread",
    "cli",
    "chat",
    "training.repetition",
    "training.prompt_file",
    "training.answer_file",
    "training.arithmetic",
    "training.settings",
    "training.overlap",
    "training.budget",
    "training.checkpoint",
    "training.progress",
    "export.frames",
    "export.slots",
    "switching",
    "race.records",
    "race.settings",
    "race.verdict",
    "race.measure",
    "evaluation.bootstrap",
    "evaluation.settings",
)


def imports(path):
    """Top-level names under mars_core, and of other packages, that a file imports anywhere."""
    inner, outer = set(), set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            module = node.module or ""
            names = [alias.name for alias in node.names]
            modules = [f"{module}.{n}" for n in names] if module == "mars_core" else [module]
        else:
            continue
        for module in modules:
            first, _, rest = module.partition(".")
            (inner if first == "mars_core" else outer).add(
                rest.split(".")[0] if first == "mars_core" else first
            )
    return inner - {"", "__version__"}, outer


FILES = sorted(p for p in ROOT.rglob("*.py") if p.name != "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_one_way(path):
    unit = path.relative_to(ROOT).parts[0].removesuffix(".py")
    inner, outer = imports(path)
    wrong = {name for name in inner if LEVEL[name] > LEVEL[unit]}
    assert not wrong, f"{path} imports {wrong} from above"
    assert "gradio" not in outer or unit == "ui"


@pytest.mark.parametrize("name", [*NO_TORCH, "ui.view", "ui.live", "ui.routes"])
def test_light_modules_import_no_torch(name):
    code = (
        f"import sys, mars_core.{name}; "
        "heavy = {'torch', 'transformers', 'gradio'} & set(sys.modules); "
        "sys.exit(' '.join(heavy) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT.parent, check=False
    )
    assert done.returncode == 0, done.stderr
