"""What one visitor may ask of a page that is open to everybody. No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mars_core.errors import MarsError
from mars_core.race.settings import RaceConfig, new_tokens
from mars_core.trace import MAX_BYTES
from mars_core.ui.live import Run


@dataclass(frozen=True, slots=True)
class Limits:
    """The most of everything; without limits a page is for the people who started it.

    characters: of a conversation, or of all prompts of a batch. new_tokens: of one answer. work:
    of a whole run, new tokens times its lanes, repeats and prompts. in_line: runs that wait or go
    on. upload: bytes of a recording. other_models: a race may load one.
    """

    characters: float = math.inf
    new_tokens: float = math.inf
    work: float = math.inf
    in_line: float = math.inf
    upload: int = MAX_BYTES
    other_models: bool = True

    def check(self, run: Run, waiting: int) -> None:
        """Raise MarsError for a run that is too much; waiting: runs that are before it."""
        size = sum(len(said.content) for messages in run.conversations for said in messages)
        if size > self.characters:
            raise MarsError(
                f"this public page takes {self.characters:,} characters at most, and these are "
                f"{size:,}: shorten the prompt, or begin a new chat"
            )
        if run.config.max_new_tokens > self.new_tokens:
            raise MarsError(f"this public page writes {self.new_tokens:,} tokens at most")
        if (work := new_tokens(run.race or run.config, len(run.conversations))) > self.work:
            raise MarsError(
                f"this public page decodes {self.work:,} tokens in one run, and these would be "
                f"{work:,}: take fewer lanes, repeats, prompts or tokens"
            )
        lanes = run.race.lanes if isinstance(run.race, RaceConfig) else ()
        if "original" in lanes and not self.other_models:
            raise MarsError("this public page has one model in memory: leave out the lane original")
        if waiting >= self.in_line:
            raise MarsError(f"{waiting} runs are waiting already: try again in a few minutes")


NO_LIMITS = Limits()
# a Space with two cores: a run of a small model takes seconds
PUBLIC = Limits(
    characters=4_000,
    new_tokens=256,
    work=4_096,
    in_line=40,
    upload=24 * 2**20,  # the pictures of an animation take most
    other_models=False,
)
