"""`mars train`: one training run, from its configuration to weights that `load` takes.

The folder of a run holds `training.yaml` (the configuration), `checkpoints/`, `log.jsonl`, and at
the end `plot.html` and the weights: `adapter/` or `model/`.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments, set_seed

from mars_core.about import device_name, library_versions
from mars_core.config import DtypeName
from mars_core.errors import MarsError
from mars_core.evaluation.prompts import evaluation_files
from mars_core.models.adapter import find_adapter
from mars_core.models.fetch import read_record
from mars_core.models.hardware import choose_arithmetic, choose_device
from mars_core.models.hush import quiet
from mars_core.models.load import LoadedModel, load
from mars_core.models.progress import Progress, silent
from mars_core.models.words import compiling
from mars_core.training.budget import Budget
from mars_core.training.checkpoint import (
    Checkpoints,
    alone,
    damaged,
    replacing,
    step_of,
    unwritable,
    write_json,
)
from mars_core.training.data import Data, Limits, end_of_turn, hold_out, load_data
from mars_core.training.model import prepare, save_weights
from mars_core.training.objective import Ids
from mars_core.training.overlap import HeldOut, evaluation_texts
from mars_core.training.progress import Entry, Report, RunLog, line, say
from mars_core.training.settings import CONFIG, TrainConfig, from_mapping, read_yaml, to_yaml
from mars_core.training.stream import BUCKET_BATCHES, Cutting, Mix, Stream
from mars_core.training.trainer import STATE, DualStreamTrainer, Surroundings

LOG, PLOT, ABOUT = "log.jsonl", "plot.html", "about.json"
CHECKPOINTS = "checkpoints"


@dataclass(frozen=True, slots=True)
class Processes:
    """How many share the run (`accelerate launch`), and which of them this one is."""

    count: int
    index: int

    @classmethod
    def here(cls) -> Processes:
        return cls(int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0)))

    def agree(self, seconds: float) -> float:
        """The first process's number."""
        if self.count == 1:
            return seconds
        backend = torch.distributed.get_backend()
        device = "cuda" if backend == "nccl" else "cpu"
        shared = torch.tensor([seconds], dtype=torch.float64, device=device)
        torch.distributed.broadcast(shared, 0)
        return float(shared)


def run(
    config: TrainConfig,
    *,
    progress: Progress = silent,
    report: Report = say,
    clock: Callable[[], float] = time.monotonic,
) -> Path:
    """Train as `config` says; the folder of the finished weights.

    progress: of fetching the model. report: takes a line of text for a person now and then.
    clock: what the budget is measured with. Raises MarsError; the last checkpoint stays intact,
    and `resume` goes on from it.
    """
    processes = Processes.here()
    tell = report if processes.index == 0 else _nothing
    # the processes of one run share its folder
    with alone(config.out) if processes.index == 0 else contextlib.nullcontext():
        return _run(config, processes, progress if processes.index == 0 else silent, tell, clock)


def _run(
    config: TrainConfig,
    processes: Processes,
    progress: Progress,
    tell: Report,
    clock: Callable[[], float],
) -> Path:
    checkpoints = Checkpoints(config.out / CHECKPOINTS)
    last = _open_folder(config, checkpoints, processes)
    loaded, autocast = _load(config, progress)
    mask_id = loaded.special.mask_id
    if mask_id is None:
        raise MarsError(f"{loaded.name} has no mask token; name one with --mask-token")
    _check_room(config, loaded)
    data = _data(config, loaded, tell)
    set_seed(config.seed)
    ids = Ids(mask_id, end_of_turn(loaded.tokenizer, loaded.special.eos_ids))
    log = RunLog(config.out / LOG)

    def emit(entry: Entry) -> None:
        log.append(entry)
        tell(line(entry))

    budget = Budget(config.steps, config.minutes, clock=clock, agree=processes.agree)
    around = Surroundings(loaded, ids, data.validation, checkpoints, budget, emit, data.fingerprint)
    with quiet():
        trainer = DualStreamTrainer(
            prepare(loaded, config, ids, autocast=autocast),
            _arguments(config, checkpoints, budget, processes),
            _stream(config, data, budget),
            around,
        )
        _train(trainer, last, log, processes)
        folder = weights_folder(config)
        if processes.index == 0:
            _export(trainer, folder, data)
            _plot(log, config.out / PLOT, tell)
        trainer.accelerator.wait_for_everyone()
    tell(f"written to {folder}")
    return folder


def weights_folder(config: TrainConfig) -> Path:
    """Where a run writes its weights in the end."""
    return config.out / ("adapter" if config.method == "lora" else "model")


def seconds_of(checkpoint: Path | None) -> float:
    """Seconds of training that a checkpoint took; 0 without one."""
    return 0.0 if checkpoint is None else float(_state_of(checkpoint)["seconds"])


def _state_of(checkpoint: Path) -> dict[str, Any]:
    """What the trainer wrote of its state; MarsError where it is not there."""
    try:
        state = json.loads((checkpoint / STATE).read_text(encoding="utf-8"))
        return {"seconds": float(state["seconds"]), "data": str(state["data"])}
    except (OSError, ValueError, KeyError, TypeError):
        raise damaged(checkpoint) from None


def check_free(config: TrainConfig) -> None:
    """Raise MarsError where a new run would destroy the weights of an earlier one."""
    there = weights_folder(config).exists() or Checkpoints(config.out / CHECKPOINTS).last()
    if there and not config.resume:
        raise MarsError(f"{config.out} holds a run already: --resume it, or name another folder")


def _nothing(text: str) -> None:
    """The report of the processes that are not the first."""


def _open_folder(
    config: TrainConfig, checkpoints: Checkpoints, processes: Processes
) -> Path | None:
    """Make the run's folder; the checkpoint to go on from, if that is wanted."""
    last = checkpoints.last()
    saved = config.out / CONFIG
    check_free(config)
    if last is not None and saved.is_file():
        config.check_goes_on(from_mapping(read_yaml(saved)))
    if processes.index == 0:
        try:
            checkpoints.folder.mkdir(parents=True, exist_ok=True)
            if last is None:
                (config.out / LOG).unlink(missing_ok=True)
            draft = saved.with_suffix(".draft")
            draft.write_text(to_yaml(replace(config, resume=False)), encoding="utf-8")
            draft.replace(saved)  # at once: other processes read it
        except OSError as error:
            raise unwritable(config.out, error) from None
    return last


def _load(config: TrainConfig, progress: Progress) -> tuple[LoadedModel, bool]:
    """The model on the CPU (the trainer moves it), and whether to compute in bfloat16."""
    device = choose_device(config.device)
    if config.attention == "flex" and device.type != "cuda":
        raise MarsError("flex attention can be trained on a cuda device only; use sdpa")
    if config.dtype in ("float16", "float64"):
        raise MarsError(f"training computes in bfloat16 or float32, not in {config.dtype}")
    dtype = choose_arithmetic(config.dtype, device, allow_packing=False).dtype
    half = dtype == torch.bfloat16
    name: DtypeName = "bfloat16" if half and config.method == "lora" else "float32"
    loaded = load(
        config.model,
        adapter=None,
        device="cpu",
        dtype=name,
        mask_token=_mask_token(config, progress),
        models_dir=config.models_dir,
        packing=False,
        progress=progress,
    )
    return loaded, half


def _mask_token(config: TrainConfig, progress: Progress) -> str | None:
    """The mask that is asked for, else that of the adapter to go on from."""
    if config.mask_token is not None or config.adapter is None:
        return config.mask_token
    mask_id = read_record(find_adapter(config.adapter, progress).folder).get("mask_token_id")
    return None if mask_id is None else str(mask_id)


def _check_room(config: TrainConfig, loaded: LoadedModel) -> None:
    """The end of a turn is repeated until the block is whole: that must fit too."""
    longest = config.max_length + config.block_size
    if longest > loaded.context_length:
        raise MarsError(
            f"max length {config.max_length} and a block of {config.block_size} do not fit the "
            f"model's context of {loaded.context_length}"
        )


def _data(config: TrainConfig, loaded: LoadedModel, tell: Report) -> Data:
    files = evaluation_files() if config.held_out is None else config.held_out
    held_out = HeldOut(text for path in files for text in evaluation_texts(path))
    limits = Limits(config.max_length, config.limit, loops=config.unlikelihood > 0)
    data = load_data(config.data, loaded.tokenizer, limits, held_out)
    hold_out(data, config.validation, config.max_validation, config.seed)
    counted = [f"{count} {why}" for why, count in sorted(data.left_out.items())]
    left_out = f"; left out: {', '.join(counted)}" if counted else ""
    sizes = " + ".join(str(len(pool)) for pool in data.pools)
    tell(
        f"{sizes} examples to learn from, {len(data.validation)} held out, {data.cut} answers cut"
        + left_out
    )
    return data


def _stream(config: TrainConfig, data: Data, budget: Budget) -> Stream:
    weights = [source.weight for source in config.data if source.weight is not None]
    if len(config.data) > config.batch_size * BUCKET_BATCHES:
        raise MarsError(f"{len(config.data)} sources want a larger batch than {config.batch_size}")
    mix = Mix(data.pools, weights or None, config.batch_size, config.seed)
    copies = config.copies if config.mask_weight else 0
    cutting = Cutting(config.block_sizes, config.random_phase, copies)
    return Stream(mix, cutting, budget.max_steps * config.batch_size, config.seed)


def _arguments(
    config: TrainConfig, checkpoints: Checkpoints, budget: Budget, processes: Processes
) -> TrainingArguments:
    """The Trainer's own settings: the loop, and none of its habits of logging and saving."""
    parts = processes.count * config.accumulate
    if config.batch_size % parts:
        raise MarsError(
            f"a batch of {config.batch_size} cannot be shared by {processes.count} processes in "
            f"{config.accumulate} parts each"
        )
    arguments = TrainingArguments(
        output_dir=str(checkpoints.folder),
        max_steps=budget.max_steps,
        per_device_train_batch_size=config.batch_size // parts,
        gradient_accumulation_steps=config.accumulate,
        max_grad_norm=config.clip,
        seed=config.seed,
        use_cpu=choose_device(config.device).type == "cpu",
        logging_strategy="no",
        save_strategy="no",
        eval_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_drop_last=True,
        dataloader_pin_memory=False,
        ddp_find_unused_parameters=False,
        ddp_broadcast_buffers=False,
    )
    if processes.count == 1:
        # several GPUs in one process would split a batch by its first dimension
        arguments._n_gpu = min(1, arguments.n_gpu)
    return arguments


def _train(
    trainer: DualStreamTrainer, last: Path | None, log: RunLog, processes: Processes
) -> None:
    """Run the steps that are left; MarsError in place of what libraries raise."""
    budget = trainer.around.budget
    spent = 0.0
    if last is not None:
        state = _state_of(last)
        if state["data"] != trainer.around.fingerprint:
            raise MarsError(f"the training data is not what {last.parent.parent} was begun with")
        spent = float(state["seconds"])
        if processes.index == 0:
            log.rewind(step_of(last))
    try:
        with compiling("the layers", "train without compile"):
            budget.start(spent)
            if last is not None and budget.progress(step_of(last)) >= 1:
                trainer.restore(last)  # done: only the end of the last attempt is to be repeated
                return
            if last is None:
                trainer.evaluate()
            trainer.train(resume_from_checkpoint=None if last is None else str(last))
    except torch.OutOfMemoryError as error:
        raise MarsError(
            "out of memory: use a smaller batch size, more of accumulate, or a lower max length"
        ) from error


def _export(trainer: DualStreamTrainer, folder: Path, data: Data) -> None:
    """Write the weights with everything that tells how they came about."""
    dual, around = trainer.dual, trainer.around
    last = around.checkpoints.last()
    about: dict[str, Any] = {
        "base": {"name": around.loaded.name, "source": around.loaded.source},
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "steps": trainer.state.global_step,
        "minutes": round(around.budget.seconds / 60, 2),
        "examples": {"training": sum(map(len, data.pools)), "held out": len(data.validation)},
        "left out": dict(data.left_out),
        "device": device_name(dual.device),
        "dtype": around.loaded.dtype_name,
        "versions": library_versions(),
    }
    with replacing(folder, lambda: f"; {last} is intact" if last else "") as draft:
        save_weights(dual, around.loaded, draft, export=True)
        (draft / CONFIG).write_text(to_yaml(dual.settings), encoding="utf-8")
        write_json(draft / ABOUT, about)


def _plot(log: RunLog, path: Path, tell: Report) -> None:
    try:
        from mars_core.training import plot
    except ImportError:
        # a machine that is only rented to train need not have plotly; the log can be plotted later
        tell("no plot: plotly is not installed")
        return
    try:
        plot.write(log.entries(), path)
    except OSError as error:
        raise unwritable(path, error) from None
