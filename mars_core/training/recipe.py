"""`mars train --recipe`: a whole run, from making its data to evaluating its weights.

It keeps to its minutes and needs nobody to watch it. Interrupted, it goes on with `resume`. The
folder is that of `mars train`, with `data/` for what was made on the way, `recipe.json` for the
time that is spent, and `evaluation.json`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mars_core.config import DecodeConfig
from mars_core.errors import MarsError
from mars_core.evaluation.settings import DecodingConfig
from mars_core.models.progress import Progress, silent
from mars_core.paths import assets_dir
from mars_core.training.checkpoint import Checkpoints, alone, unwritable, write_json
from mars_core.training.make import MakeConfig, What, make
from mars_core.training.progress import Report, say
from mars_core.training.settings import CONFIG, Source, TrainConfig, from_mapping, read_yaml

RECORD, EVALUATION = "recipe.json", "evaluation.json"
PROMPTS, ANSWERS, PROBLEMS = "prompts.jsonl", "answers.jsonl", "arithmetic.jsonl.gz"
SHARED_WITH_DISTILL = ("model", "device", "dtype", "mask_token", "models_dir")
ANSWER_TOKENS = 256
CPU_ANSWER_BATCH = 48
LEAST_MINUTES = 0.02  # of a stage, when earlier attempts have overspent


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a run does with its minutes.

    name: a run goes on with the recipe it was begun with.
    prompts: everyday prompts that the model answers first, or as many of them as there is time for
        in `distill_share` of the run; 0 for none. answer_batch: answered together on a GPU.
    problems: word problems to be made.
    weights: parts of the mix by name: "fresh" (answers to these prompts), "arithmetic" (the word
        problems), and files of `assets/data`.
    end_share: kept for loading, the last evaluations and the look at the result.
    settings: fields of TrainConfig that differ from its defaults.
    """

    name: str
    prompts: int
    distill_share: float
    answer_batch: int
    problems: int
    weights: Mapping[str, float]
    end_share: float
    settings: Mapping[str, Any] = field(default_factory=dict)


# several block sizes in one run: its first slots lose a point at most, and B can be chosen later
RECIPES: dict[str, Recipe] = {
    "cpu": Recipe(
        name="cpu",
        prompts=0,
        distill_share=0.0,
        answer_batch=0,
        problems=20_000,
        weights={"answers": 4, "distill": 2, "written": 1, "facts": 1, "arithmetic": 5},
        end_share=0.1,
        settings={"block_sizes": (2, 4, 6, 8)},
    ),
    "gpu": Recipe(
        name="gpu",
        prompts=4_900,
        distill_share=0.25,
        answer_batch=512,
        problems=60_000,
        weights={"fresh": 5, "distill": 1, "written": 2, "facts": 1, "arithmetic": 4},
        end_share=0.15,
        settings={
            "block_sizes": (2, 4, 6, 8),
            "max_validation": 32,
            "evaluate_prompts": 4,
            "batch_size": 64,
            "evaluate_minutes": 2.0,
            "checkpoint_minutes": 2.0,
        },
    ),
}


class Purse:
    """The minutes of a run, spent over all its attempts; kept in a file."""

    def __init__(self, path: Path, minutes: float, clock: Callable[[], float]) -> None:
        self._path, self._clock = path, clock
        self._total = 60 * minutes
        try:
            self._record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            self._start = clock() - float(self._record.get("seconds", 0))
        except (OSError, ValueError, TypeError, AttributeError):
            raise MarsError(f"{path} is not what a recipe wrote: name another folder") from None

    @property
    def recipe(self) -> str | None:
        """Which one began the run."""
        return self._record.get("recipe")

    def spent(self) -> float:
        """Seconds by now."""
        return self._clock() - self._start

    def left(self, keep: float = 0.0) -> float:
        """Seconds until only the share `keep` of the run is left; not below 0."""
        return max(0.0, (1 - keep) * self._total - self.spent())

    def done(self, stage: str) -> bool:
        return stage in self._record.get("done", [])

    def save(self, done: str | None = None, recipe: str | None = None) -> None:
        """Write what is spent, and that a stage is done, or which recipe begins."""
        if recipe:
            self._record["recipe"] = recipe
        self._record["seconds"] = round(self.spent(), 2)
        if done:
            self._record.setdefault("done", []).append(done)
        draft = self._path.with_suffix(".draft")
        try:
            draft.write_text(json.dumps(self._record) + "\n", encoding="utf-8")
            draft.replace(self._path)
        except OSError as error:
            raise unwritable(self._path, error) from None


@dataclass(slots=True)
class Attempt:
    """One start of a run: what it works with, and its stages, each skipped if it is done."""

    recipe: Recipe
    settings: TrainConfig
    purse: Purse
    progress: Progress
    report: Report
    clock: Callable[[], float]

    @property
    def folder(self) -> Path:
        """Of the data."""
        return self.settings.out / "data"

    def tell(self, text: str) -> None:
        self.purse.save()
        self.report(text)

    def make_data(self) -> None:
        """Make prompts and word problems, unless an earlier attempt has."""
        wanted: tuple[tuple[What, str, int], ...] = (
            ("everyday", PROMPTS, self.recipe.prompts),
            ("arithmetic", PROBLEMS, self.recipe.problems),
        )
        for what, name, count in wanted:
            if count and not (self.folder / name).is_file():
                make(MakeConfig(what, self.folder / name, count, self.settings.seed))

    def answer_prompts(self) -> None:
        """Let the model answer prompts, for as long as its share of the time lasts."""
        if not self.recipe.prompts or self.purse.done("answers"):
            return

        from mars_core.models.hardware import choose_device
        from mars_core.training.distill import DistillConfig, distill

        seconds = self.purse.left(1 - self.recipe.distill_share)
        on_cpu = choose_device(self.settings.device).type == "cpu"
        config = DistillConfig(
            prompts=self.folder / PROMPTS,
            out=self.folder / ANSWERS,
            decode=DecodeConfig(
                max_new_tokens=ANSWER_TOKENS, no_repeat_ngram_size=6, seed=self.settings.seed
            ),
            batch_size=CPU_ANSWER_BATCH if on_cpu else self.recipe.answer_batch,
            minutes=max(LEAST_MINUTES, seconds / 60),
            **{name: getattr(self.settings, name) for name in SHARED_WITH_DISTILL},
        )
        distill(config, self.progress, lambda state: self.tell(state.line))
        self.purse.save(done="answers")

    def sources(self) -> tuple[Source, ...]:
        """The data to train on, with their parts of the mix."""
        shipped = assets_dir() / "data"
        paths = {
            "fresh": self.folder / ANSWERS,
            "arithmetic": self.folder / PROBLEMS,
            "facts": shipped / "facts.jsonl",
            **{name: shipped / f"{name}.jsonl.gz" for name in ("answers", "distill", "written")},
        }
        weights = self.recipe.weights.items()
        return tuple(Source(str(paths[name]), weight) for name, weight in weights)

    def train(self) -> Path:
        """Train until only the end of the run is left; the folder of the weights."""
        from mars_core.models.hush import quiet

        with quiet():
            from mars_core.training import train
        if not self.purse.done("training"):
            # the trainer counts what earlier attempts have trained, too
            before = train.seconds_of(Checkpoints(self.settings.out / "checkpoints").last())
            minutes = (self.purse.left(self.recipe.end_share) + before) / 60
            config = replace(
                self.settings, data=self.sources(), minutes=round(max(LEAST_MINUTES, minutes), 4)
            )
            train.run(config, progress=self.progress, report=self.tell, clock=self.clock)
            self.purse.save(done="training")
        return train.weights_folder(self.settings)

    def look(self, weights: Path) -> None:
        """Answer prompts with the new weights in the time that is left, and write how it went."""
        if self.purse.done("look"):
            return

        from mars_core.evaluation.decoding import measure
        from mars_core.evaluation.decoding_table import table
        from mars_core.models.load import load

        full = self.settings.method == "full"
        loaded = load(
            str(weights) if full else self.settings.model,
            adapter=None if full else str(weights),
            device=self.settings.device,
            dtype=self.settings.dtype,
            models_dir=self.settings.models_dir,
            progress=self.progress,
        )
        config = DecodingConfig(
            sets=("arithmetic", "everyday"),
            taus=(0.95, 0.8),
            limit=80,
            minutes=self.purse.left() / 60,
        )
        result = measure(loaded, config, lambda done: self.purse.save(), self.clock)
        try:
            write_json(self.settings.out / EVALUATION, asdict(result))
        except OSError as error:
            raise unwritable(self.settings.out, error) from None
        self.tell(table(result))
        self.purse.save(done="look")


def run_recipe(
    recipe: Recipe,
    given: Mapping[str, Any],
    *,
    progress: Progress = silent,
    report: Report = say,
    clock: Callable[[], float] = time.monotonic,
) -> Path:
    """Follow a recipe; the folder of the weights.

    given: plain values by their names in `TrainConfig`; out and minutes have to be among them.
    Raises MarsError; with `resume` a run goes on after it.
    """
    settings = checked(recipe, given)
    assert settings.minutes is not None
    with alone(settings.out / "data"):
        purse = Purse(settings.out / RECORD, settings.minutes, clock)
        check_begun(recipe, settings, purse)
        attempt = Attempt(recipe, settings, purse, progress, report, clock)
        purse.save(recipe=recipe.name)
        try:
            attempt.make_data()
            attempt.answer_prompts()
            weights = attempt.train()
            attempt.look(weights)
        finally:
            purse.save()
    return weights


def check_begun(recipe: Recipe, settings: TrainConfig, purse: Purse) -> None:
    """Raise MarsError unless the folder is free, or holds what these settings go on with."""
    out, saved = settings.out, settings.out / CONFIG
    if not settings.resume:
        if purse.recipe or saved.exists():
            raise MarsError(f"{out} holds a run already: --resume it, or name another folder")
    elif purse.recipe not in (recipe.name, None):
        raise MarsError(f"{out} was begun with the recipe {purse.recipe}: go on with that")
    elif saved.is_file():
        settings.check_goes_on(from_mapping(read_yaml(saved)), "data")


def checked(recipe: Recipe, given: Mapping[str, Any]) -> TrainConfig:
    """The settings of the run, but for its data."""
    for name in ("data", "steps"):
        if given.get(name) is not None:
            raise MarsError(f"a recipe brings its own {name}: drop it")
    if given.get("minutes") is None:
        raise MarsError("how long may it take? give minutes")
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise MarsError("a recipe runs in one process: start it without accelerate launch")
    return from_mapping({**recipe.settings, **given, "data": [RECORD]})
