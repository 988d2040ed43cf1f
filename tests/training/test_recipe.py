"""Whole runs: within their minutes, restartable, and with few libraries."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest

from mars_core.errors import MarsError
from mars_core.evaluation import decoding
from mars_core.models.load import load
from mars_core.training import distill, recipe, train
from mars_core.training.recipe import RECIPES, Recipe, run_recipe
from tests.training.runs import PLAIN, Killed, Ticks

TINY = Recipe(
    name="tiny",
    prompts=24,
    distill_share=0.25,
    answer_batch=8,
    problems=40,
    weights={"fresh": 2, "facts": 1, "arithmetic": 1},
    end_share=0.2,
    settings={"batch_size": 4, "rank": 2, "evaluate_prompts": 1, "evaluate_tokens": 4},
)


@pytest.fixture
def given(base, tmp_path, monkeypatch):
    """Settings of a run that is over in about a hundred ticks of its clock."""
    monkeypatch.setattr(recipe, "ANSWER_TOKENS", 8)
    return {
        "out": tmp_path / "run",
        "model": str(base),
        "device": "cpu",
        "dtype": "float32",
        "max_length": 200,
        "limit": 40,
        "max_validation": 4,
        "minutes": 100 / 60,
        "checkpoint_minutes": 10 / 60,
    }


def test_a_whole_run(given):
    said = []
    clock = Ticks()
    weights = run_recipe(TINY, given, report=said.append, clock=clock)
    out = given["out"]
    assert weights == out / "adapter"
    assert load(given["model"], adapter=str(weights), **PLAIN).trained
    assert any("answered 24 of 24" in text for text in said)
    found = json.loads((out / "evaluation.json").read_text())
    assert found["about"]["model"]["adapter"] == "adapter"
    assert {(row["set"], row["tau"]) for row in found["rows"]} >= {
        ("arithmetic", 1.0),
        ("arithmetic", 0.95),
    }
    # the clock moves on at every reading, so that the last look is a little over
    assert 80 < clock.now < 110
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    trained = max(entry["minutes"] for entry in log if entry["kind"] == "train") * 60
    assert 50 < trained < 81
    assert json.loads((out / "recipe.json").read_text())["done"] == ["answers", "training", "look"]
    seen = (out / "evaluation.json").read_text()
    assert run_recipe(TINY, {**given, "resume": True}) == weights  # nothing is left to do
    assert (out / "evaluation.json").read_text() == seen
    with pytest.raises(MarsError, match="was begun with the recipe tiny"):
        run_recipe(RECIPES["gpu"], {**given, "resume": True})
    with pytest.raises(MarsError, match="begun with another rank"):
        run_recipe(TINY, {**given, "resume": True, "rank": 3})
    (out / "recipe.json").write_text("3")
    with pytest.raises(MarsError, match="not what a recipe wrote"):
        run_recipe(TINY, {**given, "resume": True})


@pytest.mark.parametrize("stage", ["answered ", "step 20,", "look"])
def test_a_killed_run_goes_on(given, stage, monkeypatch):
    """Whatever it was at; what is done is not done again."""
    said = []

    def report(text):
        said.append(text)
        if text.startswith(stage):
            raise Killed

    def killed(*args, **kwargs):
        raise Killed

    with monkeypatch.context() as patch:
        if stage == "look":
            patch.setattr(decoding, "measure", killed)
        with pytest.raises(Killed):
            run_recipe(TINY, given, report=report, clock=Ticks())
    spent = json.loads((given["out"] / "recipe.json").read_text())["seconds"]
    assert spent > 0
    with pytest.raises(MarsError, match="holds a run already"):
        run_recipe(TINY, given)

    with monkeypatch.context() as patch:
        if stage != "answered ":
            patch.setattr(distill, "distill", killed)
        if stage == "look":
            patch.setattr(train, "run", killed)
        clock = Ticks(10**5)
        weights = run_recipe(TINY, {**given, "resume": True}, report=said.append, clock=clock)
    assert load(given["model"], adapter=str(weights), **PLAIN).trained
    assert clock.now - 10**5 < 110 - spent + 10  # it counts from where it was
    if stage == "step 20,":
        steps = [text for text in said if text.startswith("step ")]
        assert len(steps) == len(set(steps)) + steps.count("step 20")


def test_what_a_recipe_refuses(given, monkeypatch):
    with pytest.raises(MarsError, match="brings its own steps"):
        run_recipe(TINY, {**given, "steps": 3})
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(MarsError, match="accelerate launch"):
        run_recipe(TINY, given)


@pytest.mark.parametrize("name", list(RECIPES))
def test_recipes_are_what_can_be_run(name, given, tmp_path):
    """Their settings are valid, and their sources exist once the data are made."""
    found = RECIPES[name]
    recipe.checked(found, {"out": tmp_path, "minutes": 8})
    small = replace(found, prompts=min(found.prompts, 8), problems=8)
    weights = run_recipe(small, {**given, "batch_size": 4, "rank": 2}, clock=Ticks())
    assert (weights / "adapter_model.safetensors").is_file()


def test_it_needs_torch_transformers_peft_and_accelerate_only(given, tmp_path):
    """With every other library hidden, as on a machine that is only lent to train."""
    code = """
        import sys
        from importlib.metadata import distributions, packages_distributions, requires
        from packaging.requirements import Requirement
        from packaging.utils import canonicalize_name

        present = {canonicalize_name(d.name) for d in distributions()}
        allowed, todo = set(), ["torch", "transformers", "peft", "accelerate", "jinja2"]
        while todo:
            name = canonicalize_name(todo.pop())
            if name in allowed or name not in present:
                continue
            allowed.add(name)
            for line in requires(name) or []:
                wanted = Requirement(line)
                if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                    todo.append(wanted.name)
        hidden = {
            module
            for module, owners in packages_distributions().items()
            if not allowed & {canonicalize_name(owner) for owner in owners}
        } - {"mars_core", "tests"}
        assert {"gradio", "plotly", "gguf", "bitsandbytes", "platformdirs"} <= hidden, hidden
        hidden |= {"pydantic"}  # of transformers' later versions only

        sys.modules.update(dict.fromkeys(hidden))  # as if not installed

        from dataclasses import replace
        from mars_core import cli
        from mars_core.training import recipe

        recipe.ANSWER_TOKENS = 4
        gpu = recipe.RECIPES["gpu"]
        recipe.RECIPES["gpu"] = replace(gpu, prompts=24, answer_batch=8, problems=40)
        sys.exit(cli.main(sys.argv[1:]))
    """
    names = ("out", "model", "device", "dtype", "max_length", "limit", "max_validation")
    flags = [text for n in names for text in (f"--{n.replace('_', '-')}", str(given[n]))]
    small = "--minutes 0.1 --batch-size 4 --rank 2 --evaluate-prompts 1 --evaluate-tokens 4"
    command = ["train", "--recipe", "gpu", *small.split(), *flags]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "no plot: plotly is not installed" in done.stderr
    assert (given["out"] / "evaluation.json").is_file()
