"""The dual-stream objective: from token ids to the batch of one forward, and its losses. Pure.

One forward runs over a clean stream (the tokens as they are) and one or more noisy copies of it
(every response token replaced by the mask), all with the positions of the clean stream. A copy is
cut into blocks of B positions. Who sees whom, for a row at position t:

    clean   the clean stream up to and with t
    noisy   the clean stream before its own block, and its own copy from there up to t

The row at position t predicts token t + 1, as in any AR model. So mask j of a block (1-based)
learns the token j + 1 past the last clean one it sees, which is what decoding calls slot j; slot
0, the next token, is learned by the clean stream alone. Only response tokens are labelled. The
one noisy row that holds a real token and has a label is the prompt's last, which predicts the
first token of the response.

Shapes: N sequences, T rows each after padding, R labelled rows in the whole batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

CLEAN, PADDING = 0, -1  # streams; noisy copies are 1, 2, ...
NEXT, REPEAT = 0, -1  # slots: of the clean stream; of the noisy row that holds a real token
# labelled rows whose logits exist at the same time; a GPU would rather be called less often
HEAD_ROWS, HEAD_ROWS_GPU = 128, 1024


@dataclass(frozen=True, slots=True)
class Example:
    """One conversation up to and with the answer that is learned.

    ids: tokens, without the one that ends the turn. start: where the answer begins, at least 1.
    finished: the answer ended by itself; False where a limit cut it, and then no end is taught.
    """

    ids: Sequence[int]
    start: int
    finished: bool


@dataclass(frozen=True, slots=True)
class Blocks:
    """How a noisy copy is cut: position t is in block (t + phase) // size."""

    size: int
    phase: int = 0

    def begin(self, position: int) -> int:
        """The first position of the block that `position` is in."""
        return max(0, position - (position + self.phase) % self.size)

    def missing(self, length: int) -> int:
        """How many positions a sequence of `length` lacks to end with a whole block."""
        return -(length + self.phase) % self.size


@dataclass(frozen=True, slots=True)
class Ids:
    """The ids the objective writes: [MASK], and the token that ends a turn."""

    mask: int
    end: int


@dataclass(slots=True)
class Batch:
    """What one forward needs. All tensors are of dtype long unless said otherwise.

    input_ids, position_ids: (N, T).
    stream: (N, T), CLEAN, the number of a noisy copy, or PADDING.
    begin: (N, T), the first position of the row's block; 0 in the clean stream.
    rows: (R,), labelled rows as indices into the N * T flattened ones.
    labels: (R,), the token each is to predict.
    slots: (R,), NEXT in the clean stream, j for the j-th mask of a block, REPEAT.
    share: (R,) float32, sums to 1 over each stream: 1 / (N * labelled rows of its sequence there).
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    stream: torch.Tensor
    begin: torch.Tensor
    rows: torch.Tensor
    labels: torch.Tensor
    slots: torch.Tensor
    share: torch.Tensor


def build_batch(
    examples: Sequence[Example],
    cuts: Sequence[Sequence[Blocks]],
    ids: Ids,
    *,
    clean_labels: bool = True,
    trim: bool = True,
) -> Batch:
    """The batch of `examples`; cuts[n] has the blocks of each noisy copy of example n.

    clean_labels: False leaves the clean stream unlabelled (training without L_AR).
    trim: leave out rows that no label depends on: noisy ones of blocks that end before the
        response is predicted, and the last of each stream.
    """
    laid = [
        _lay_out(example, copies, ids, clean_labels, trim)
        for example, copies in zip(examples, cuts, strict=True)
    ]
    width = max(len(one.ids) for one in laid)
    rows = [n * width + row for n, one in enumerate(laid) for row in one.rows]
    share = [weight / len(laid) for one in laid for weight in one.shares()]
    return Batch(
        input_ids=_stacked([one.ids for one in laid], width, ids.end),
        position_ids=_stacked([one.positions for one in laid], width, 0),
        stream=_stacked([one.stream for one in laid], width, PADDING),
        begin=_stacked([one.begin for one in laid], width, 0),
        rows=torch.tensor(rows, dtype=torch.long),
        labels=torch.tensor([x for one in laid for x in one.labels], dtype=torch.long),
        slots=torch.tensor([x for one in laid for x in one.slots], dtype=torch.long),
        share=torch.tensor(share, dtype=torch.float32),
    )


def with_ending(example: Example, copies: Sequence[Blocks], end: int) -> list[int]:
    """The example's tokens with the end of its turn, repeated until every copy's last block is
    whole; an unfinished answer as it is.
    """
    tokens = list(example.ids)
    if example.finished:
        length = len(tokens) + 1
        tokens += [end] * (1 + max((cut.missing(length) for cut in copies), default=0))
    return tokens


class _Laid:
    """The streams of one example, one after the other."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.positions: list[int] = []
        self.stream: list[int] = []
        self.begin: list[int] = []
        self.rows: list[int] = []
        self.labels: list[int] = []
        self.slots: list[int] = []

    def add(self, number: int, ids: Sequence[int], places: range, begins: Sequence[int]) -> None:
        """Append a stream; `ids` and `begins` go with `places`."""
        self.ids += ids
        self.positions += places
        self.stream += [number] * len(places)
        self.begin += begins

    def shares(self) -> list[float]:
        """Per labelled row, one over the number of labelled rows of its kind of stream."""
        clean = sum(slot == NEXT for slot in self.slots)
        return [1 / (clean if s == NEXT else len(self.slots) - clean) for s in self.slots]


def _lay_out(
    example: Example, copies: Sequence[Blocks], ids: Ids, clean_labels: bool, trim: bool
) -> _Laid:
    tokens = with_ending(example, copies, ids.end)
    stop = len(tokens) - trim
    labelled = range(example.start - 1, len(tokens) - 1)
    laid = _Laid()
    laid.add(CLEAN, tokens[:stop], range(stop), [0] * stop)
    if clean_labels:
        laid.rows += labelled
        laid.labels += tokens[example.start :]
        laid.slots += [NEXT] * len(labelled)
    noisy = tokens[: example.start] + [ids.mask] * (len(tokens) - example.start)
    for number, cut in enumerate(copies, start=1):
        places = range(cut.begin(example.start - 1) if trim else 0, stop)
        offset = len(laid.ids) - places.start
        laid.add(number, noisy[places.start : stop], places, [cut.begin(t) for t in places])
        laid.rows += [offset + t for t in labelled]
        laid.labels += tokens[example.start :]
        # counted from the last real token the row can see
        laid.slots += [
            t + 1 - max(cut.begin(t), example.start) if t >= example.start else REPEAT
            for t in labelled
        ]
    return laid


def _stacked(lists: Sequence[list[int]], width: int, fill: int) -> torch.Tensor:
    return torch.tensor([x + [fill] * (width - len(x)) for x in lists], dtype=torch.long)


def _sees(
    query: tuple[torch.Tensor, torch.Tensor, torch.Tensor], key: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    """Whether a query (stream, position, begin) may attend to a key (stream, position).

    A clean row's block begins at 0, so that "its own stream from there" is plain causality.
    Padding sees padding, since a row that sees nothing would be not a number.
    """
    (stream, position, begin), (key_stream, key_position) = query, key
    context = (key_stream == CLEAN) & (key_position < begin)
    own = (key_stream == stream) & (key_position >= begin) & (key_position <= position)
    return context | own


def dense_mask(
    stream: torch.Tensor, position_ids: torch.Tensor, begin: torch.Tensor
) -> torch.Tensor:
    """The mask for SDPA, (N, 1, T, T) bool: True where row (dim 2) may see column (dim 3)."""
    query = (stream[:, :, None], position_ids[:, :, None], begin[:, :, None])
    return _sees(query, (stream[:, None], position_ids[:, None]))[:, None]


def block_mask(stream: torch.Tensor, position_ids: torch.Tensor, begin: torch.Tensor) -> BlockMask:
    """The same mask for flex attention, which skips what nobody sees."""

    def seen(n: torch.Tensor, head: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        query = (stream[n, q], position_ids[n, q], begin[n, q])
        return _sees(query, (stream[n, k], position_ids[n, k]))

    rows, width = stream.shape
    return create_block_mask(seen, rows, None, width, width, device=str(stream.device))


@dataclass(frozen=True, slots=True)
class RowLosses:
    """What the labelled rows say, each (R,) but the first and without gradient but the first.

    loss: scalar, the weighted sum of nll. nll: -log p of the label. top: the largest probability.
    right: bool, the most likely token is the label.
    """

    loss: torch.Tensor
    nll: torch.Tensor
    top: torch.Tensor
    right: torch.Tensor


@dataclass(frozen=True, slots=True)
class Teacher:
    """Another model's view of some labelled rows, learned there beside the label: knowledge
    distillation (Hinton et al., arXiv 1503.02531) at temperature 1.

    It is heard only where it would choose the label itself: there it says how sure to be, and
    elsewhere the label stands for what is to change.

    hidden: (S, d), what its head is given. head, bias: as in `row_losses`. places: (R,) long,
    where in `hidden` a row's is, -1 for rows of which it has no view. share: of its prediction in
    the target, 0 to 1.
    """

    hidden: torch.Tensor
    head: torch.Tensor
    bias: torch.Tensor | None
    places: torch.Tensor
    share: float

    def says(
        self, rows: slice, labels: torch.Tensor, mask_id: int, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows among `rows` where it is heard (n,), and its probabilities (n, vocabulary)."""
        seen = (self.places[rows] >= 0).nonzero()[:, 0] + rows.start
        logits = functional.linear(self.hidden[self.places[seen]], self.head, self.bias)
        logits[:, mask_id] = -torch.inf
        agrees = logits.argmax(-1) == labels[seen]
        return seen[agrees], torch.softmax(logits[agrees], -1, dtype=dtype)


def row_losses(
    hidden: torch.Tensor,
    head: torch.Tensor,
    bias: torch.Tensor | None,
    labels: torch.Tensor,
    weights: torch.Tensor,
    mask_id: int,
    teacher: Teacher | None = None,
) -> RowLosses:
    """Cross-entropy of the labelled rows, with the mask token left out as decoding does.

    hidden: (R, d), what the head is given. head: (vocabulary, d), bias: (vocabulary,) or None.
    weights: (R,), of each row in the loss. teacher: changes the target of some rows in the loss;
    `nll` stays that of the label. Logits are made for a few rows at a time, and their gradient at
    once, so that all of them never exist together.
    """
    return RowLosses(*_HeadLoss.apply(hidden, head, bias, labels, weights, mask_id, teacher))


class _HeadLoss(torch.autograd.Function):
    """The fused head and cross-entropy behind `row_losses`."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        head: torch.Tensor,
        bias: torch.Tensor | None,
        labels: torch.Tensor,
        weights: torch.Tensor,
        mask_id: int,
        teacher: Teacher | None,
    ) -> tuple[torch.Tensor, ...]:
        exact = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        slopes = [
            torch.zeros_like(x) if x is not None and wanted else None
            for x, wanted in zip((hidden, head, bias), ctx.needs_input_grad, strict=False)
        ]
        nll, top = (torch.empty(len(labels), dtype=exact, device=hidden.device) for _ in "ab")
        right = torch.empty(len(labels), dtype=torch.bool, device=hidden.device)
        # what a teacher adds to the cross-entropy
        added = torch.zeros_like(nll)
        masked = torch.tensor([mask_id], device=hidden.device)
        step = HEAD_ROWS if hidden.device.type == "cpu" else HEAD_ROWS_GPU
        for first in range(0, len(labels), step):
            rows = slice(first, first + step)
            logits = functional.linear(hidden[rows], head, bias)
            logits[:, mask_id] = -torch.inf
            wanted = labels[rows, None]
            # softmax is one pass where logsumexp takes four; the largest logit gives the sum back
            probs = torch.softmax(logits, -1, dtype=exact)
            best, surest = logits.max(-1), probs.amax(-1)
            short = best.values.to(exact) - logits.gather(-1, wanted)[:, 0].to(exact)
            nll[rows] = short - surest.log()
            top[rows] = surest
            right[rows] = best.indices == wanted[:, 0]
            probs.scatter_add_(-1, wanted, torch.full_like(probs[:, :1], -1))
            if teacher is not None:
                heard, aims = teacher.says(rows, labels, mask_id, exact)
                aims.scatter_add_(-1, labels[heard, None], torch.full_like(aims[:, :1], -1))
                probs.index_add_(0, heard - first, aims, alpha=-teacher.share)
                spread = logits[heard - first].to(exact).index_fill_(1, masked, 0)
                added[heard] = -teacher.share * (aims * spread).sum(-1)
            if any(slope is not None for slope in slopes):
                probs.mul_(weights[rows, None].to(exact))
                _add_slopes(slopes, probs, hidden[rows], head, rows)
        ctx.save_for_backward(*slopes)
        ctx.mark_non_differentiable(nll, top, right)
        return ((nll + added) * weights.to(exact)).sum(), nll, top, right

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> tuple[torch.Tensor | None, ...]:
        saved = cast(tuple[torch.Tensor | None, ...], ctx.saved_tensors)
        grads = [None if x is None else x * slopes[0].to(x.dtype) for x in saved]
        return (*grads, None, None, None, None)


def _add_slopes(
    slopes: Sequence[torch.Tensor | None],
    by_logits: torch.Tensor,
    hidden: torch.Tensor,
    head: torch.Tensor,
    rows: slice,
) -> None:
    """Carry the loss's gradient by some rows' logits over to hidden, head and bias."""
    of_hidden, of_head, of_bias = slopes
    by_logits = by_logits.to(hidden.dtype)
    if of_hidden is not None:
        of_hidden[rows] = by_logits.to(head.dtype) @ head
    if of_head is not None:
        of_head.addmm_(by_logits.T, hidden)
    if of_bias is not None:
        of_bias += by_logits.sum(0)


def slot_counts(
    slots: torch.Tensor, nll: torch.Tensor, top: torch.Tensor, right: torch.Tensor, size: int
) -> torch.Tensor:
    """Sums per slot, (size + 1, 5) float32: rows, right, above .9, above .9 and right, nll.

    Slot 0 is the clean stream's, slot j that of mask j. Arguments as in `Batch`, `RowLosses`.
    """
    sure = top > 0.9
    columns = torch.stack([torch.ones_like(top), right, sure, sure & right, nll], dim=1)
    counted = slots != REPEAT
    sums = torch.zeros(size + 1, columns.shape[1], device=slots.device)
    return sums.index_add_(0, slots[counted], columns[counted].float())
