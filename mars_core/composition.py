"""A second, smaller model that drafts for the first: speculative decoding, composed with masks.

The draft model decodes a few tokens by itself, one per forward or, if it is a MARS model too,
several; the target verifies them all in one forward that may carry masks of its own (section 4.6
of arXiv 2604.07023, Figure 5). A draft is kept where the target chooses the same token, so text
and quality are the target's alone. When sampling, both draw with the same noise at the same
position: the target's draw is that of its own run, and the draft's is often equal to it. So no
rejection rule is needed, and a run is reproducible by its seed.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from mars_core.cache import Session
from mars_core.config import DecodeConfig, SpecialTokens
from mars_core.decode import decode
from mars_core.drafting import Proposal
from mars_core.events import Drafted, Prefill, Step


@dataclass(frozen=True, slots=True)
class ModelDrafter:
    """Drafts with another model of the same vocabulary; its cache follows the text.

    config: how it decodes; its limit is set for every call.
    """

    session: Session
    config: DecodeConfig
    special: SpecialTokens

    def __call__(
        self, ids: Sequence[int], count: int, forward: int
    ) -> Generator[Drafted, None, list[Proposal]]:
        """At most `count` tokens behind `ids`, fewer at the end of its context or of its text."""
        proposals: list[Proposal] = []
        if count < 1 or len(ids) >= self.session.max_length:
            return proposals
        config = replace(self.config, max_new_tokens=count)
        for event in decode(self.session, ids, config, self.special):
            if isinstance(event, Prefill) and event.tokens:
                yield Drafted(0, forward, event.tokens)
            elif isinstance(event, Step):
                yield Drafted(0, forward, event.fed)
                for token in event.tokens:
                    slot = event.slots[token.slot]
                    proposals.append(Proposal(token.token, None, slot.prob, slot.confidence))
        return proposals
