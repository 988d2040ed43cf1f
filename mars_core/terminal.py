"""Trace records as a coloured terminal stream. Pure: records in, strings out. No torch."""

from __future__ import annotations

from mars_core import trace

# background tints of the 256-colour cube that keep black text legible
TINTS = (153, 223, 158, 225, 189, 216)
RESET = "\x1b[0m"
# C0 and C1 controls, and the marks that turn the direction of what follows
CONTROLS = (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F))
ISOLATES = range(0x2066, 0x206A)
VISIBLE_CONTROLS = {code: f"\\u{code:04x}" for code in (*CONTROLS, *ISOLATES)}


def printable(text: str) -> str:
    """Text that cannot steer a terminal: control characters but newline and tab are spelt out."""
    return text.translate(VISIBLE_CONTROLS)


def step_text(step: trace.StepRecord, *, colour: bool) -> str:
    """What a step adds to the stream; a pass of several tokens is tinted, neighbours apart."""
    text = printable("".join(token.text for token in step.tokens))
    if not colour or len(step.tokens) < 2 or not text:
        return text
    tint = f"\x1b[30;48;5;{TINTS[step.forward % len(TINTS)]}m"
    # a tint that runs across a newline would paint the rest of the terminal's line
    return "\n".join(f"{tint}{line}{RESET}" if line else "" for line in text.split("\n"))


def plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def summary_line(done: trace.DoneRecord) -> str:
    """One line of figures about a finished run."""
    if not done.forwards:
        return f"stopped before the first forward, prefill {done.prefill_ms:.0f} ms"
    return (
        f"{plural(done.tokens, 'token')} in {plural(done.forwards, 'forward')} "
        f"({done.tokens / done.forwards:.2f} per forward), "
        f"{1000 * done.tokens / max(done.decode_ms, 1e-3):.1f} tok/s, "
        f"prefill {done.prefill_ms:.0f} ms, ended by {done.reason}"
    )
