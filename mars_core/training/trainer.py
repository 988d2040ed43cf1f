"""transformers' Trainer, told what is ours: data, loss, schedule, checkpoints, evaluation.

Its loop, gradient accumulation, processes (accelerate), clipping and random states stay its own.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch.utils.data import Sampler, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from mars_core.errors import MarsError
from mars_core.models.load import LoadedModel
from mars_core.training.budget import Budget, lr_share
from mars_core.training.checkpoint import Checkpoints, damaged, step_of, write_json
from mars_core.training.evaluate import (
    distinct_prompts,
    held_out_losses,
    tensors,
    tokens_per_forward,
)
from mars_core.training.model import DualStream, groups, load_weights, save_weights
from mars_core.training.objective import NEXT, Blocks, Example, Ids, build_batch
from mars_core.training.progress import Entry, slot_entries
from mars_core.training.settings import TrainConfig

STATE = "mars_state.json"


@dataclasses.dataclass(slots=True)
class Collator:
    """Makes a batch of what `Stream` gives."""

    ids: Ids
    clean_labels: bool

    def __call__(self, items: Sequence[tuple[Example, list[Blocks]]]) -> dict[str, torch.Tensor]:
        examples, cuts = zip(*items, strict=True)
        batch = build_batch(examples, cuts, self.ids, clean_labels=self.clean_labels)
        return dict(tensors(batch))


@dataclasses.dataclass(slots=True)
class Surroundings:
    """What a trainer works with besides the model.

    loaded: names the base and knows its tokenizer. validation: examples, maybe none. emit: takes
    every entry of the log.
    """

    loaded: LoadedModel
    ids: Ids
    validation: list[Example]
    checkpoints: Checkpoints
    budget: Budget
    emit: Callable[[Entry], None]
    fingerprint: str


class DualStreamTrainer(Trainer):
    """Trains a `DualStream` on a `Stream`."""

    def __init__(
        self,
        model: DualStream,
        args: TrainingArguments,
        stream: Any,
        around: Surroundings,
    ) -> None:
        self.settings = model.settings
        self.around = around
        super().__init__(
            model=model,
            args=args,
            train_dataset=stream,
            data_collator=Collator(around.ids, model.settings.ar_weight > 0),
        )
        self.remove_callback(PrinterCallback)
        self.add_callback(Pace(self))
        self.tally = torch.zeros(model.settings.block_size + 1, 5, device=args.device)
        self.losses = torch.zeros(2, device=args.device)

    @property
    def dual(self) -> DualStream:
        model = self.model
        assert isinstance(model, DualStream)
        return model

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        # the stream is in order already, and its place in it is all a resumed run needs
        stream: Any = self.train_dataset if train_dataset is None else train_dataset
        return SequentialSampler(stream)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        if self.optimizer is None:
            self.optimizer = torch.optim.AdamW(groups(self.dual), betas=(0.9, 0.99))
        return self.optimizer

    def create_scheduler(
        self, num_training_steps: int, optimizer: Any = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        config, budget = self.settings, self.around.budget

        def share(step: int) -> float:
            return lr_share(budget.progress(step), config.warmup, config.floor)

        if self.lr_scheduler is None:
            steered = cast(torch.optim.Optimizer, optimizer or self.optimizer)
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(steered, share)
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        found = model(**inputs)
        loss = found["loss"]
        if not torch.isfinite(loss):
            last = self.around.checkpoints.last()
            kept = f"{last} is intact" if last else "there is no checkpoint yet"
            raise MarsError(
                f"the loss is not a number in step {self.state.global_step + 1}: try a lower "
                f"learning rate or --dtype float32; {kept}"
            )
        self.tally += found["counts"]
        self.losses += (
            torch.stack([found["ar"], found["mask"]]) / self.args.gradient_accumulation_steps
        )
        return (loss, found) if return_outputs else loss

    def _save(
        self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None
    ) -> None:
        assert output_dir is not None
        if self.args.should_save:
            Path(output_dir).mkdir(parents=True, exist_ok=True)
            save_weights(self.dual, self.around.loaded, Path(output_dir))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        load_weights(self.dual, Path(resume_from_checkpoint))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        try:
            super()._load_optimizer_and_scheduler(checkpoint)
        except Exception as error:
            # torch and pickle each have their own errors for a damaged file
            if checkpoint is None:
                raise
            raise damaged(Path(checkpoint)) from error

    def restore(self, checkpoint: Path) -> None:
        """Take a checkpoint's weights, to do nothing more with them than to write them."""
        load_weights(self.dual, checkpoint)
        self.state.global_step = step_of(checkpoint)

    def _get_output_dir(self, trial: Any) -> str:
        return str(self.around.checkpoints.draft)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint next to the others, and only then let it count as one."""
        step, checkpoints = self.state.global_step, self.around.checkpoints
        try:
            super()._save_checkpoint(model, trial)
            if self.args.should_save:
                write_json(
                    checkpoints.draft / checkpoints.name(step).name / STATE,
                    {"seconds": self.around.budget.seconds, "data": self.around.fingerprint},
                )
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                checkpoints.publish(step)
            self.accelerator.wait_for_everyone()
        except Exception as error:
            # torch, safetensors and the file system each have their own errors for a full disk
            raise checkpoints.failed(error) from error

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Log how good the model is on the held-out examples; the first process does it for all."""
        around = self.around
        if self.args.should_save and around.validation:
            per_forward = self.args.per_device_train_batch_size
            entry: Entry = {
                "kind": "evaluation",
                "step": self.state.global_step,
                "minutes": round(around.budget.seconds / 60, 4),
                **held_out_losses(self.dual, around.validation, around.ids, per_forward),
                "tokens_per_forward": tokens_per_forward(
                    self.dual,
                    distinct_prompts(around.validation, self.settings.evaluate_prompts),
                    around.loaded.special,
                    around.loaded.context_length,
                ),
            }
            around.emit(entry)
        self.accelerator.wait_for_everyone()
        return {}


class Pace(TrainerCallback):
    """Keeps the budget: when to log, evaluate, save and stop. All processes decide alike."""

    def __init__(self, trainer: DualStreamTrainer) -> None:
        self._trainer = trainer
        self._config: TrainConfig = trainer.settings
        self._budget = trainer.around.budget
        self._saved = self._evaluated = 0.0
        self._begun = self._busy = 0.0
        self._logged_step = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._saved = self._evaluated = self._budget.seconds
        self._logged_step = state.global_step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._begun = time.monotonic()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # before the scheduler steps, which asks for the progress
        self._budget.read()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._busy += time.monotonic() - self._begun
        now = self._budget.seconds
        if self._budget.progress(state.global_step) >= 1:
            control.should_training_stop = True
        over = control.should_training_stop
        if over or state.global_step - self._logged_step >= self._config.log_steps:
            self._log(state.global_step)
        if over or now - self._evaluated >= 60 * self._config.evaluate_minutes:
            control.should_evaluate, self._evaluated = True, now
        if over or now - self._saved >= 60 * self._config.checkpoint_minutes:
            control.should_save, self._saved = True, now

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # the Trainer looks once more after its last step, which has been seen to
        control.should_evaluate = control.should_save = False

    def _log(self, step: int) -> None:
        """One entry over the steps since the last, summed over all processes."""
        trainer = self._trainer
        reduce = trainer.accelerator.reduce
        counts, losses = (
            reduce(trainer.tally.clone(), "sum"),
            reduce(trainer.losses.clone(), "mean"),
        )
        steps, self._logged_step = step - self._logged_step, step
        busy, self._busy = self._busy, 0.0
        trainer.tally.zero_()
        trainer.losses.zero_()
        ar, mask = (losses / steps).tolist()
        # each stream has the same labels; without L_AR only the noisy ones are counted
        labelled = counts[NEXT, 0] or counts[:, 0].sum() / max(1, self._config.copies)
        trainer.around.emit(
            {
                "kind": "train",
                "step": step,
                "minutes": round(self._budget.seconds / 60, 4),
                "lr": trainer._get_learning_rate(),
                "tokens_per_second": round(float(labelled) / busy, 2) if busy else 0.0,
                "ar_loss": ar if self._config.ar_weight else None,
                "mask_loss": mask if self._config.mask_weight else None,
                "slots": slot_entries(counts.tolist()),
            }
        )
