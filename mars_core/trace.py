"""The trace: the record of a run that people see, save and replay. No torch.

A trace is JSON Lines: a header, then one record per event with its text and milliseconds.
`TRACE.md` beside this file documents the format. Readers keep fields they do not know, so that
a file passes through an older program unharmed.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from mars_core.config import MAX_SEED, Mode
from mars_core.errors import MarsError

T = TypeVar("T")

VERSION: Literal[1] = 1
MAX_BYTES = 64 * 2**20
MAX_RECORDS = 200_000

Count = Annotated[int, Field(ge=0, le=10**9)]
Parameters = Annotated[int, Field(ge=0, le=10**15)]
Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
Ordinal = Annotated[int, Field(ge=1, le=10**9)]
TokenId = Annotated[int, Field(ge=0, le=10**9)]
Unit = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Bytes = Annotated[int, Field(ge=0, le=10**15)]
Milliseconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
TokenSource = Literal["ar", "slot", "draft"]


class TraceError(MarsError):
    """A trace that cannot be read; the message names the line."""


class Record(BaseModel):
    """Base of everything in a trace: immutable, strictly typed, unknown fields kept."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


class Message(Record):
    """One chat turn."""

    role: Literal["system", "user", "assistant"]
    content: str


class Prompt(Record):
    """What was asked: chat messages, the text the model was given, and its length in tokens."""

    messages: tuple[Message, ...]
    text: str
    tokens: Count


class ModelInfo(Record):
    """Which weights ran.

    weights: their origin and precision in words. quantization: of the linear layers, "none", "int8"
    or "nf4". trained: fine-tuned for MARS.
    block_size: the B it was trained with. licence: of the weights, where it is known.
    """

    name: str
    source: str
    weights: str
    adapter: str | None = None
    licence: str | None = None
    architecture: str
    parameters: Parameters
    quantization: str = "none"
    mask_token: str | None = None
    mask_id: TokenId | None = None
    trained: bool
    block_size: Ordinal | None = None
    context_length: Ordinal


class Header(Record):
    """First line of every trace.

    prompt: null in a batch, where each row's comes with its `join`.
    memory: bytes of `weights`, and of the `cache` of prompt and answer (of all rows, in a batch).
    settings: the DecodeConfig, field by field. costs: milliseconds per forward by rows fed, where
    the loop was given such a table. created: UTC, ISO 8601.
    """

    type: Literal["header"]
    format: Literal["mars-trace"]
    version: Literal[1]
    created: str
    model: ModelInfo
    draft_model: ModelInfo | None = None
    dtype: str
    dtype_reason: str | None = None
    device: str
    versions: dict[str, str]
    memory: dict[str, Bytes] | None = None
    prompt: Prompt | None = None
    settings: dict[str, Any]
    seed: Seed
    costs: dict[str, Milliseconds] | None = None


class PrefillRecord(Record):
    """The prompt but its last token entered the cache (`tokens` computed, `reused` kept)."""

    type: Literal["prefill"]
    row: Count
    tokens: Count
    reused: Count
    ms: Milliseconds


class AlternativeRecord(Record):
    """A token a slot could have emitted."""

    id: TokenId
    text: str
    prob: Unit


class SlotRecord(Record):
    """One prediction of a forward; `confidence` is the metric compared with tau."""

    slot: Count
    id: TokenId
    text: str
    prob: Unit
    confidence: Unit
    accepted: bool
    alternatives: tuple[AlternativeRecord, ...] = ()


class TokenRecord(Record):
    """A committed token.

    text: what it added to the output; empty for a special token, and while a character is
    incomplete (the token that completes it carries it). special: name of a special token.
    slot: index of the slot or draft it came from.
    """

    id: TokenId
    text: str
    source: TokenSource
    slot: Count
    special: str | None = None


class Address(Record):
    """A slot of an earlier forward of the same row."""

    forward: Ordinal
    slot: Count


class DraftRecord(Record):
    """A proposed token that was fed to be verified.

    origin: the slot that proposed it; null for a draft model's. parent: index of the draft it
    follows in a tree (null: the one before it in the list, or the last committed token).
    """

    id: TokenId
    text: str
    verdict: Literal["kept", "rejected", "unreached"]
    origin: Address | None = None
    parent: Count | None = None
    prob: Unit | None = None


class HindsightRecord(Record):
    """AR's own choice where (forward, slot) of this row was accepted from a mask."""

    forward: Ordinal
    slot: Count
    ar_token: TokenId
    ar_text: str
    ar_prob: Unit


class StepRecord(Record):
    """One forward of one row.

    fed: token rows given to the model. position: sequence index of the first committed token.
    group: which group of masks the slots belong to (verified decoding). ms: duration of the
    forward; in a batch, records of equal `forward` share it and it counts once.
    """

    type: Literal["step"]
    row: Count
    forward: Ordinal
    mode: Mode
    tau: Unit
    fed: Count
    position: Count
    ms: Milliseconds
    slots: tuple[SlotRecord, ...]
    tokens: tuple[TokenRecord, ...]
    hindsight: tuple[HindsightRecord, ...] = ()
    drafts: tuple[DraftRecord, ...] = ()
    group: Count | None = None


class ForwardRecord(Record):
    """A forward that commits nothing: a draft model's, or a block cache's extension."""

    type: Literal["forward"]
    role: Literal["draft", "extend"]
    rows: tuple[Count, ...]
    forward: Ordinal
    fed: Count
    ms: Milliseconds


class ControlRecord(Record):
    """Mode or tau was moved while running; in force from `forward` on."""

    type: Literal["control"]
    row: Count
    forward: Ordinal
    mode: Mode
    tau: Unit


class JoinRecord(Record):
    """A row enters the batch before `forward`."""

    type: Literal["join"]
    row: Count
    forward: Ordinal
    prompt: Prompt


class IdleRecord(Record):
    """A row waits during `forward` (block cache: it has filled its block)."""

    type: Literal["idle"]
    row: Count
    forward: Ordinal


class LeaveRecord(Record):
    """A row frees its place after `forward`."""

    type: Literal["leave"]
    row: Count
    forward: Count


class DoneRecord(Record):
    """The row ended.

    text: its whole output, equal to the pieces of its tokens and `tail` (what was left of an
    incomplete character). tokens counts EOS. decode_ms: sum over its forwards.
    """

    type: Literal["done"]
    row: Count
    reason: Literal["eos", "stop", "length", "context", "stopped"]
    text: str
    tail: str = ""
    tokens: Count
    forwards: Count
    prefill_ms: Milliseconds
    decode_ms: Milliseconds


AnyRecord = (
    Header
    | PrefillRecord
    | StepRecord
    | ForwardRecord
    | ControlRecord
    | JoinRecord
    | IdleRecord
    | LeaveRecord
    | DoneRecord
)
_ADAPTER: TypeAdapter[AnyRecord] = TypeAdapter(Annotated[AnyRecord, Field(discriminator="type")])


def dump_record(record: Record) -> str:
    """The record as one line of JSON, without a newline. Fields never set are left out."""
    return record.model_dump_json(exclude_unset=True)


def parse_record(line: str | bytes, number: int = 1) -> AnyRecord:
    """The record of one line; `number` is named in the TraceError if it is not one."""
    return _parse(line, number, _ADAPTER)


def _parse(line: str | bytes, number: int, adapter: TypeAdapter[T]) -> T:
    try:
        return adapter.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        where = f" at {place}" if place else ""
        raise TraceError(f"trace line {number}{where}: {_one_line(first['msg'])}") from None


def write_trace(path: Path, records: Iterable[Record]) -> None:
    """Write records, a race's too, as JSON Lines (UTF-8)."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(dump_record(record) + "\n" for record in records)


def read_trace(source: Path | bytes) -> list[AnyRecord]:
    """Read a trace that may come from anybody.

    Returns the records, the Header first. A run that was cut off has no `done` record: that is
    no error. Raises TraceError, naming the line, for anything that is not a trace, and for one
    over MAX_BYTES or MAX_RECORDS.
    """
    found = []
    for number, record in enumerate(read_records(source, _ADAPTER), 1):
        if isinstance(record, Header) != (number == 1):
            raise TraceError(f"trace line {number}: the header belongs on line 1, and only there")
        found.append(record)
    return found


def read_records(source: Path | bytes, adapter: TypeAdapter[T]) -> Iterator[T]:
    """The records of a file, one line after the other; TraceError as `read_trace` raises it."""
    try:
        with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
            yield from _parse_lines(file, adapter)
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        raise TraceError(f"cannot read the trace: {_one_line(str(error))}") from None


def _parse_lines(file: IO[bytes], adapter: TypeAdapter[T]) -> Iterator[T]:
    left = MAX_BYTES
    number = 0
    while line := file.readline(left + 1):
        number += 1
        left -= len(line)
        if left < 0 or number > MAX_RECORDS:
            limit = f"{MAX_BYTES // 2**20} MiB or {MAX_RECORDS} lines"
            raise TraceError(f"trace line {number}: a trace is at most {limit}")
        yield _parse(line, number, adapter)
    if number == 0:
        raise TraceError("the trace is empty: line 1 must be its header")


def _one_line(text: str) -> str:
    return " ".join(text.split())
