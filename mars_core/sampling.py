"""From logits to one token and its confidence: penalties, temperature, top-p, keyed noise.

How these combine, for every slot of every forward:

1. The mask token's logit is -inf: it is never emitted.
2. The repetition penalty is applied over the history, and ids that would repeat an n-gram of it
   are put at -inf where that is asked for, both as transformers does it. The history of a slot is
   the prompt, everything committed, and the tokens chosen by the slots before it in the same
   forward.
3. Probabilities, alternatives and the confidence that is compared with tau come from this
   distribution, in float32 (float64 for a float64 model), before temperature and top-p: so tau
   means the same at every temperature.
4. Greedy (temperature 0) takes its arg max, the lowest id on a tie. Otherwise temperature and
   top-p shape it and one token is drawn with Gumbel noise keyed by (seed, row, position): the
   draw at a position does not depend on how many tokens were committed with it.
5. A mask slot whose draw is not its most likely token is rejected. The slots behind it were
   predicted as if it were; and AR, asked for the same position in the next forward with the same
   noise, repeats the draw where its own distribution is close.

With at most one acceptance per forward this is plain sampling from AR's distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mars_core.config import DecodeConfig, Metric
from mars_core.errors import MarsError


@dataclass(frozen=True, slots=True)
class Reading:
    """What one row of logits says.

    token: the choice. prob: its probability. confidence: the metric, in [0, 1].
    modal: the choice is the most likely token. alternatives: (token, probability), best first.
    """

    token: int
    prob: float
    confidence: float
    modal: bool
    alternatives: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Reader:
    """Turns logits into readings under one configuration; `suppressed` ids are never chosen."""

    config: DecodeConfig
    suppressed: tuple[int, ...]

    def read_rows(
        self,
        logits: torch.Tensor,
        histories: Sequence[Sequence[int]],
        keys: Sequence[tuple[int, int]],
    ) -> list[Reading]:
        """Read independent rows.

        logits: (n, vocabulary). histories: tokens before each row's prediction, for the penalties.
        keys: (row, position) of each predicted token, for the noise.
        Raises MarsError where the model's output is not a number.
        """
        if not len(logits):
            return []
        scores = self._scores(logits, histories)
        log_total = scores.logsumexp(-1, keepdim=True)
        best = scores.argmax(-1)
        chosen = best if self.config.temperature == 0 else self._draw(scores, keys)
        top = scores.topk(min(max(self.config.alternatives, 2), scores.shape[-1]), dim=-1)
        probs = (top.values - log_total).exp().clamp(max=1)
        chosen_probs = (scores.gather(-1, chosen[:, None]) - log_total).exp().clamp(max=1)
        confidences = confidence(self.config.metric, scores, log_total, probs)
        totals = log_total[:, 0].tolist()
        if not all(map(math.isfinite, totals)):
            raise MarsError("the model's output is not a number; load it with --dtype float32")
        shown = self.config.alternatives
        return [
            Reading(token, prob, sure, token == mode, tuple(zip(ids[:shown], ps, strict=False)))
            for token, prob, sure, mode, ids, ps in zip(
                chosen.tolist(),
                chosen_probs[:, 0].tolist(),
                confidences.tolist(),
                best.tolist(),
                top.indices.tolist(),
                probs.tolist(),
                strict=True,
            )
        ]

    def read_window(
        self, logits: torch.Tensor, history: Sequence[int], known: Sequence[int], row: int
    ) -> list[Reading]:
        """Read one forward's rows from left to right.

        logits: (n, vocabulary), row i predicting position len(history) + i. history: tokens up to
        and including the first row's input. known: tokens already committed at the first
        predicted positions; behind them, each row's own choice is the history of the next.
        """
        keys = [(row, len(history) + i) for i in range(len(logits))]
        if not self.looks_back:  # rows do not depend on each other
            return self.read_rows(logits, [()] * len(logits), keys)
        seen = list(history)
        readings = []
        for i, key in enumerate(keys):
            readings += self.read_rows(logits[i : i + 1], [seen], [key])
            seen.append(known[i] if i < len(known) else readings[-1].token)
        return readings

    @property
    def looks_back(self) -> bool:
        """Whether a reading depends on the tokens before it, not on its logits alone."""
        return self.config.repetition_penalty != 1 or self.config.no_repeat_ngram_size > 0

    @property
    def way(self) -> tuple[object, ...]:
        """All that its readings depend on: readers of the same way may read for each other."""
        config = self.config
        shape = (config.temperature, config.top_p, config.repetition_penalty)
        return (
            *shape,
            config.no_repeat_ngram_size,
            config.metric,
            config.alternatives,
            config.seed,
            self.suppressed,
        )

    def _scores(self, logits: torch.Tensor, histories: Sequence[Sequence[int]]) -> torch.Tensor:
        """Logits in at least float32 with the suppressed ids out and the penalties applied."""
        exact = torch.float64 if logits.dtype == torch.float64 else torch.float32
        scores = logits.to(exact, copy=True)
        if self.suppressed:
            scores[:, list(self.suppressed)] = -torch.inf
        if self.config.repetition_penalty != 1:
            for row, history in zip(scores, histories, strict=True):
                penalise(row, history, self.config.repetition_penalty)
        if self.config.no_repeat_ngram_size:
            for row, history in zip(scores, histories, strict=True):
                forbid_repeats(row, history, self.config.no_repeat_ngram_size)
        return scores

    def _draw(self, scores: torch.Tensor, keys: Sequence[tuple[int, int]]) -> torch.Tensor:
        """One sampled id per row of `scores` (n, vocabulary)."""
        # from the best score down, so that a tiny temperature cannot overflow
        below = scores - scores.amax(-1, keepdim=True)
        shaped = keep_nucleus(below / self.config.temperature, self.config.top_p)
        # there, since the noise is made there; and Apple's GPUs have no float64
        drawn = [
            (line + gumbel(self.config.seed, *key, line.shape[-1])).argmax()
            for line, key in zip(shaped.cpu().double(), keys, strict=True)
        ]
        return torch.stack(drawn).to(scores.device)


def confidence(
    metric: Metric, scores: torch.Tensor, log_total: torch.Tensor, top: torch.Tensor
) -> torch.Tensor:
    """The metric of each row, (n,), in [0, 1]; higher = surer.

    scores: (n, vocabulary) with normaliser log_total (n, 1). top: (n, >= 2) best probabilities.
    """
    if metric == "probability":
        return top[:, 0]
    if metric == "margin":
        return top[:, 0] - top[:, 1]
    entropy = torch.special.entr((scores - log_total).exp()).sum(-1)
    return (-entropy).exp().clamp(max=1)


def penalise(scores: torch.Tensor, history: Sequence[int], penalty: float) -> None:
    """Apply the repetition penalty to one row (vocabulary,) in place, as transformers does.

    Every id in `history` has its score divided by `penalty` if positive, else multiplied.
    """
    ids = torch.tensor(sorted(set(history)), dtype=torch.long, device=scores.device)
    seen = scores[ids]
    scores[ids] = torch.where(seen < 0, seen * penalty, seen / penalty)


def forbid_repeats(scores: torch.Tensor, history: Sequence[int], size: int) -> None:
    """Put at -inf, in one row (vocabulary,) in place, every id that would complete a run of `size`
    tokens that is in `history` already, as transformers does.
    """
    tokens = list(history)
    first = len(tokens) - size + 1
    if first < 0:
        return
    begun = tokens[first:]
    ends = (start + size - 1 for start in range(first) if tokens[start : start + size - 1] == begun)
    scores[[tokens[end] for end in ends]] = -torch.inf


def keep_nucleus(scores: torch.Tensor, top_p: float) -> torch.Tensor:
    """Scores (n, vocabulary) with everything outside the nucleus at -inf.

    The nucleus is the smallest set of most likely tokens whose probability reaches top_p.
    """
    if top_p >= 1:
        return scores
    ordered, ids = scores.sort(dim=-1, descending=True)
    probs = ordered.softmax(-1)
    outside = probs.cumsum(-1) - probs >= top_p  # what comes before already suffices
    return scores.masked_fill(outside.gather(-1, ids.argsort(-1)), -torch.inf)


def gumbel(seed: int, row: int, position: int, size: int) -> torch.Tensor:
    """Standard Gumbel noise (size,), float64: a pure function of its arguments.

    A counter-based generator (Philox) with key (seed, row) and the position as the counter's
    highest word, so no two positions share a block.
    """
    counter = np.array([0, 0, 0, position], dtype=np.uint64)
    bits = np.random.Philox(key=np.array([seed, row], dtype=np.uint64), counter=counter)
    uniform = ((bits.random_raw(size) >> np.uint64(11)) + 0.5) * 2.0**-53
    return torch.from_numpy(-np.log(-np.log(uniform)))
