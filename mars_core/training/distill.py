"""`mars distill`: a model's own answers to a file of prompts, as training data.

Prompts of similar length are answered together by the batched one-token loop, which takes the next
in as soon as one is answered. Portions of them are made from the whole prompt file and come in a
shuffled order, both the same in every run: an interrupted run goes on with the portions that are
missing, and what there is so far is a fair sample. Several processes (one thread each) take whole
portions; their answers are written in the order one process would have written them.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch

from mars_core.about import conditions
from mars_core.answers import Answer, answer_batch, encode_all
from mars_core.chat import Turn
from mars_core.config import MAX_SEED, DecodeConfig, Device, DtypeName, check_range
from mars_core.errors import MarsError
from mars_core.models.load import LoadedModel, load
from mars_core.models.progress import Progress, silent
from mars_core.models.words import expanded
from mars_core.row import check_prompt
from mars_core.training.answer_file import AnswerFile, Tally
from mars_core.training.checkpoint import alone
from mars_core.training.prompt_file import Task, read_tasks
from mars_core.training.repetition import is_looping

# not behind a digit: "2." begins the next item of a list
SENTENCE_END = re.compile(r"(?<!\d)[.!?][\"')]*(?=\s|$)|\n")
# of DecodeConfig: what an answer depends on
ANSWER_SETTINGS = (
    "max_new_tokens",
    "temperature",
    "top_p",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "seed",
)
MAX_AUTO_PROCESSES = 8
# A portion is so many batches at most, and a large file has so many portions at least: at the end
# of one the batch runs dry, but processes share them, and a run that stops loses those under way.
MAX_BATCHES, MIN_PORTIONS = 3, 16


@dataclass(frozen=True, slots=True)
class DistillConfig:
    """What to answer, with which weights, and how.

    prompts: see `prompt_file`. out: a `.jsonl` file, see `answer_file`. system: the system prompt
    of prompts without one (None: the chat template's own). decode: limits, sampling, repetition
    penalty; answers are always produced one token per forward. batch_size: conversations answered
    at once. processes: on a CPU, each with one thread; 0 takes one per core, up to 8. limit: stop
    after about so many prompts. minutes: stop after so long, with the portions that are done.
    """

    prompts: Path
    out: Path
    model: str
    adapter: str | None = None
    device: Device = "auto"
    dtype: DtypeName = "auto"
    mask_token: str | None = None
    models_dir: Path | None = None
    system: str | None = None
    decode: DecodeConfig = field(default_factory=lambda: DecodeConfig(max_new_tokens=256))
    batch_size: int = 48
    processes: int = 0
    limit: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        check_range("batch size", self.batch_size, 1, 4096, whole=True)
        check_range("processes", self.processes, 0, 256, whole=True)
        if self.limit is not None:
            check_range("limit", self.limit, 1, 10**9, whole=True)
        if self.minutes is not None:
            check_range("minutes", self.minutes, 0.001, 10**6)
        if self.decode.stop:
            raise MarsError("stop strings have no use in distillation: drop them")


@dataclass(frozen=True, slots=True)
class DistillState:
    """How far it is. prompts: in the file. tokens, seconds: of this run. tally: of all runs."""

    prompts: int
    tokens: int
    seconds: float
    tally: Tally

    @property
    def line(self) -> str:
        """E.g. "answered 96 of 3840, 251 tokens/s, 4 % looping, 61 % finished"."""
        tally = self.tally
        speed = self.tokens / self.seconds if self.seconds else 0
        finished = tally.finished / tally.rows if tally.rows else 0
        return (
            f"answered {tally.answered} of {self.prompts}, {speed:.0f} tokens/s, "
            f"{tally.share('looping'):.0%} looping, {finished:.0%} of the rest finished"
        )


def distill(
    config: DistillConfig,
    progress: Progress = silent,
    report: Callable[[DistillState], None] = lambda state: None,
) -> DistillState:
    """Answer every prompt that has no answer in `config.out` yet.

    report: called after every portion. Raises MarsError for bad input; answers so far are kept.
    """
    tasks, duplicates = read_tasks(config.prompts, config.system)
    loaded = load_model(config, progress)
    portions = plan(loaded, tasks, config)
    about = {**origin(loaded, config), "duplicates": duplicates}
    out = expanded(config.out)
    with alone(out.parent, f".{out.name}.lock"):
        output = AnswerFile(out, about)
        todo = unanswered(portions, output.done, config.limit)
        processes = choose_processes(config, loaded, len(todo))
        start = time.perf_counter()
        before = output.tally.tokens

        def state() -> DistillState:
            seconds = time.perf_counter() - start
            return DistillState(len(tasks), output.tally.tokens - before, seconds, output.tally)

        if processes == 1:
            given = (config.decode, config.batch_size)
            answered = (answer_tasks(loaded, portion, *given) for portion in todo)
        else:
            answered = in_processes(config, loaded.dtype_name, processes, todo)
            del loaded  # the workers have their own
        with closing(answered):
            for rows in answered:
                output.append(rows)
                report(state())
                if config.minutes and time.perf_counter() - start >= 60 * config.minutes:
                    break
        return state()


def load_model(config: DistillConfig, progress: Progress = silent) -> LoadedModel:
    return load(
        config.model,
        adapter=config.adapter,
        device=config.device,
        dtype=config.dtype,
        mask_token=config.mask_token,
        models_dir=config.models_dir,
        progress=progress,
    )


def origin(loaded: LoadedModel, config: DistillConfig) -> dict[str, Any]:
    """Where the answers come from, for the file beside them."""
    settings = asdict(config.decode)
    return {
        "prompts": config.prompts.name,
        "settings": {name: settings[name] for name in ANSWER_SETTINGS},
        "system": config.system,
        "batch_size": config.batch_size,
        **conditions(loaded),
    }


@dataclass(frozen=True, slots=True)
class Portion:
    """Tasks that are answered together. number: its place in the plan, for the sampling seed."""

    number: int
    tasks: tuple[Task, ...]


def plan(loaded: LoadedModel, tasks: Sequence[Task], config: DistillConfig) -> list[Portion]:
    """All tasks in portions of as many turns and similar length, in a shuffled order.

    Raises MarsError, naming the line, for a prompt that does not fit into the model.
    """
    lengths: dict[str, int] = {}
    for task in tasks:
        try:
            (ids,) = encode_all(loaded, [task.first])
            check_prompt(ids, loaded.context_length)
        except MarsError as error:
            raise MarsError(f"{config.prompts.name}, line {task.line}: {error}") from None
        lengths[task.key] = len(ids)
    batches = len(tasks) // MIN_PORTIONS // config.batch_size
    size = config.batch_size * max(1, min(MAX_BATCHES, batches))
    order = sorted(tasks, key=lambda task: (len(task.turns), lengths[task.key], task.key))
    groups: list[list[Task]] = []
    for task in order:
        last = groups[-1] if groups else []
        if not last or len(last) == size or len(last[0].turns) != len(task.turns):
            groups.append([])
        groups[-1].append(task)
    random.Random(config.decode.seed).shuffle(groups)
    return [Portion(number, tuple(group)) for number, group in enumerate(groups)]


def unanswered(portions: Sequence[Portion], done: set[str], limit: int | None) -> list[Portion]:
    """What is left of each portion; no further portion once `limit` prompts are answered."""
    left: list[Portion] = []
    planned = 0
    for portion in portions:
        if limit is not None and planned >= limit:
            break
        planned += len(portion.tasks)
        if rest := tuple(task for task in portion.tasks if task.key not in done):
            left.append(replace(portion, tasks=rest))
    return left


def choose_processes(config: DistillConfig, loaded: LoadedModel, portions: int) -> int:
    """How many processes: as asked for, else one per core; one on a device that is shared."""
    if loaded.device.type != "cpu":
        return 1
    # torch counts the physical cores that this process may use; each worker needs over 1 GB
    wanted = config.processes or min(torch.get_num_threads(), MAX_AUTO_PROCESSES)
    return max(1, min(wanted, portions))


def answer_tasks(
    loaded: LoadedModel, portion: Portion, config: DecodeConfig, rows: int
) -> list[dict[str, Any]]:
    """Answer a portion, `rows` conversations at once, turn by turn; its rows in their order.

    A conversation with an answer that loops or is empty ends there, with `dropped` saying why.
    """
    dialogues = [Dialogue(task, list(task.opening)) for task in portion.tasks]
    for number in range(len(portion.tasks[0].turns)):
        active = [dialogue for dialogue in dialogues if dialogue.ask(number, loaded)]
        if not active:
            break
        # other noise for every portion and turn, the same in every run
        seed = (config.seed + 1_000_003 * portion.number + 7919 * number) % (MAX_SEED + 1)
        prompts = encode_all(loaded, [dialogue.messages for dialogue in active])
        answers = answer_batch(loaded, prompts, replace(config, seed=seed), rows)
        for dialogue, answer in zip(active, answers, strict=True):
            dialogue.take(answer)
    return [dialogue.row() for dialogue in dialogues]


@dataclass(slots=True)
class Dialogue:
    """A conversation while it is being answered."""

    task: Task
    messages: list[Turn]
    last: Answer | None = None
    tokens: int = 0
    dropped: str | None = None

    def ask(self, turn: int, loaded: LoadedModel) -> bool:
        """Put the next question; False where the conversation is over before it."""
        if self.dropped:
            return False
        if self.last and not self.last.finished:  # what follows a cut answer should be natural
            self.messages[-1] = assistant(whole_sentences(self.last.text))
        question = Turn(role="user", content=self.task.turns[turn])
        (ids,) = encode_all(loaded, [[*self.messages, question]])
        if len(ids) >= loaded.context_length:
            self.dropped = "too long"
            return False
        self.messages.append(question)
        return True

    def take(self, answer: Answer) -> None:
        """Take the model's answer to the last question."""
        self.last = answer
        self.tokens += answer.tokens
        self.messages.append(assistant(answer.text))
        if not answer.text.strip():
            self.dropped = "empty"
        elif is_looping(answer.text):
            self.dropped = "looping"

    def row(self) -> dict[str, Any]:
        """The line to be written."""
        row: dict[str, Any] = {
            **self.task.extra,
            "id": self.task.key,
            "messages": [{"role": m.role, "content": m.content} for m in self.messages],
            "finished": self.last is not None and self.last.finished,
            "tokens": self.tokens,
        }
        return {**row, "dropped": self.dropped} if self.dropped else row


def assistant(text: str) -> Turn:
    return Turn(role="assistant", content=text)


def whole_sentences(text: str) -> str:
    """`text` up to its last sentence or line end; all of it if there is none."""
    ends = [match.end() for match in SENTENCE_END.finditer(text)]
    return text[: ends[-1]].rstrip() if ends else text


# --- several processes --------------------------------------------------------------------------

_worker: LoadedModel | None = None


def start_worker(config: DistillConfig) -> None:
    """Load the model in a new process, once."""
    global _worker
    # Ctrl-C reaches all processes of a terminal; the one that started the others sees to it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    _worker = load_model(config)


def end_with_parent() -> None:
    """End this worker when the process that started it is killed: nobody else would."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def work(portion: Portion, config: DecodeConfig, rows: int) -> list[dict[str, Any]]:
    assert _worker is not None
    return answer_tasks(_worker, portion, config, rows)


def in_processes(
    config: DistillConfig, dtype: str, processes: int, todo: Sequence[Portion]
) -> Generator[list[dict[str, Any]], None, None]:
    """The rows of every portion, in order, worked out by several processes with one thread each.

    dtype: the number format, decided once for all of them.
    """
    config = replace(config, dtype=cast(DtypeName, dtype))
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        processes, multiprocessing.get_context("spawn"), start_worker, (config,)
    )
    try:
        given = (config.decode, config.batch_size)
        for future in [pool.submit(work, portion, *given) for portion in todo]:
            yield future.result()
    except BrokenProcessPool:
        raise MarsError(
            "a worker process died, perhaps for lack of memory; the answers so far are kept: "
            "go on with fewer --processes or a smaller --portion-size"
        ) from None
    except BaseException:
        # nobody waits for the portions that are being worked on
        for worker in set(multiprocessing.active_children()) - others:
            worker.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
