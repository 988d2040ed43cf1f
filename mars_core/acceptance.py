"""How many slots of a forward become text. Pure rules, no torch."""

from __future__ import annotations

from collections.abc import Sequence


def accepted_by_tau(confidences: Sequence[float], modal: Sequence[bool], tau: float) -> int:
    """Slots accepted from the left under the MARS rule, at least 1.

    Slot 0 is AR's own prediction and always accepted. Each further slot is accepted while its
    confidence is >= tau and its draw is its most likely token (always so when greedy; see
    `mars_core.sampling`). A NaN confidence is never accepted.

    tau = 1 accepts exactly one: a float32 softmax can return 1.0, which would otherwise pass.

    Source: arXiv 2604.07023, section on decoding.
    """
    if tau >= 1:
        return 1
    count = 1
    while count < len(confidences) and confidences[count] >= tau and modal[count]:
        count += 1
    return count
