"""Every slot of a recording as a table: CSV for whoever wants to count something else."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence

from mars_core import trace
from mars_core.export.recording import Recording, lanes_of

COLUMNS = (
    "lane", "row", "forward", "mode", "tau", "ms", "fed", "position", "slot", "token_id", "token",
    "probability", "confidence", "accepted", "ar_token_id", "ar_token", "ar_probability",
    "group", "verdict",
)  # fmt: skip


def slots_csv(recording: Recording) -> str:
    """One line per slot, accepted or not. `mars_core/TRACE.md` explains the columns.

    Tokens are written as JSON strings: their spaces are to be seen, and no spreadsheet takes one
    for a formula.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for lane, records in lanes_of(recording):
        writer.writerows(_rows(lane, records))
    return file.getvalue()


def _rows(lane: str, records: Sequence[trace.AnyRecord]) -> Iterator[list[object]]:
    steps = [record for record in records if isinstance(record, trace.StepRecord)]
    seen = {(step.row, h.forward, h.slot): h for step in steps for h in step.hindsight}
    verdicts = {
        (step.row, draft.origin.forward, draft.origin.slot): draft.verdict
        for step in steps
        for draft in step.drafts
        if draft.origin is not None
    }
    for step in steps:
        of_step = [step.row, step.forward, step.mode, step.tau, step.ms, step.fed, step.position]
        for slot in step.slots:
            known = seen.get((step.row, step.forward, slot.slot))
            # slot 0 is AR's own choice
            ar = (slot.id, slot.text, slot.prob) if slot.slot == 0 else None
            if known is not None:
                ar = (known.ar_token, known.ar_text, known.ar_prob)
            yield [
                lane, *of_step, slot.slot, slot.id, _quoted(slot.text), slot.prob, slot.confidence,
                int(slot.accepted),
                *((ar[0], _quoted(ar[1]), ar[2]) if ar else ("", "", "")),
                step.group, verdicts.get((step.row, step.forward, slot.slot)),
            ]  # fmt: skip


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
