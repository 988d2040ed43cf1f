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

An answer that got stuck is shown in the clean stream alone, which learns what not to say there:
the tokens that repeat get the unlikelihood loss -log(1 - p) (Welleck et al., arXiv 1908.04319).

Shapes: N sequences, T rows each after padding, R labelled rows in the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

CLEAN, PADDING = 0, -1  # streams; noisy copies are 1, 2, ...
# slots: of the clean stream; of the noisy row that holds a real token; of what not to say
NEXT, REPEAT, UNWANTED = 0, -1, -2
# labelled rows whose logits exist at the same time; a GPU would rather be called less often
HEAD_ROWS, HEAD_ROWS_GPU = 128, 1024


@dataclass(frozen=True, slots=True)
class Example:
    """One conversation up to and with the answer that is learned.

    ids: tokens, without the one that ends the turn. start: where the answer begins, at least 1.
    finished: the answer ended by itself; False where a limit cut it, and then no end is taught.
    unwanted: places in `ids` of tokens not to say. Where there are any, they alone are learned.
    """

    ids: Sequence[int]
    start: int
    finished: bool
    unwanted: Sequence[int] = ()


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
    labels: (R,), the token each is to predict, or with the slot UNWANTED not to predict.
    slots: (R,), NEXT or UNWANTED in the clean stream, j for the j-th mask of a block, REPEAT.
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
    """The batch of `examples`; cuts[n] has the blocks of each noisy copy of example n, which one
    with unwanted tokens has none of.

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
        clean = [slot in (NEXT, UNWANTED) for slot in self.slots]
        return [1 / clean.count(kind) for kind in clean]


def _lay_out(
    example: Example, copies: Sequence[Blocks], ids: Ids, clean_labels: bool, trim: bool
) -> _Laid:
    tokens = with_ending(example, copies, ids.end)
    stop = len(tokens) - trim
    labelled = range(example.start - 1, len(tokens) - 1)
    laid = _Laid()
    laid.add(CLEAN, tokens[:stop], range(stop), [0] * stop)
    if example.unwanted:
        laid.rows += [place - 1 for place in example.unwanted]
        laid.labels += [tokens[place] for place in example.unwanted]
        laid.slots += [UNWANTED] * len(example.unwanted)
    elif clean_labels:
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


def follow(
    position_ids: torch.Tensor,
    clean_rows: torch.Tensor,
    clean_labels: torch.Tensor,
    choices: torch.Tensor,
    rows: torch.Tensor,
    slots: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the clean stream would say at noisy rows, and whether it would have come there.

    A mask stands for tokens that decoding takes from nowhere else, so what it is to predict is AR's
    own continuation. That is known where the data are that continuation: where every token of the
    mask's block up to it is the clean stream's choice. Then it is its choice for the next.

    position_ids: (N, T). clean_rows: (S,), labelled rows of the clean stream, as in `Batch`.
    clean_labels, choices: (S,), the token that follows each, and the most likely one. rows, slots:
    (R,), of noisy rows. Returns labels, (R,) long, and (R,) bool.
    """
    width = position_ids.shape[1]
    own = torch.zeros_like(position_ids)
    own.view(-1)[clean_rows] = choices
    strays = torch.zeros_like(position_ids)
    strays.view(-1)[clean_rows] = (clean_labels != choices).long()
    before = strays.cumsum(1) - strays  # of the rows in front of each
    # the clean stream comes first, so its columns are positions
    number, position = rows // width, position_ids.view(-1)[rows]
    masks = slots.clamp_min(0)
    followed = before[number, position] == before[number, position - masks]
    return own[number, position], followed


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
    """(N, 1, T, T) bool: True where row (dim 2) may see column (dim 3)."""
    query = (stream[:, :, None], position_ids[:, :, None], begin[:, :, None])
    return _sees(query, (stream[:, None], position_ids[:, None]))[:, None]


def additive_mask(
    stream: torch.Tensor, position_ids: torch.Tensor, begin: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """The same mask as numbers that are added to attention's scores."""
    seen = dense_mask(stream, position_ids, begin)
    return torch.where(seen, 0.0, torch.finfo(dtype).min).to(dtype)


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

    loss: scalar, the weighted sum of what each row is to learn. nll: -log p of the label. top: the
    largest probability. choices: long, the most likely token.
    """

    loss: torch.Tensor
    nll: torch.Tensor
    top: torch.Tensor
    choices: torch.Tensor


@dataclass(frozen=True, slots=True)
class Teacher:
    """Another model's view of some labelled rows, learned there beside the label: knowledge
    distillation (Hinton et al., arXiv 1503.02531) at temperature 1.

    It is heard only where it would choose the label itself: there it says how sure to be, and
    elsewhere the label stands for what is to change.

    hidden: (S, d), what its head is given. head, bias: as in `row_losses`. rows: (S,) long, which
    of the labelled rows these are. share: of its prediction in the target, 0 to 1.
    """

    hidden: torch.Tensor
    head: torch.Tensor
    bias: torch.Tensor | None
    rows: torch.Tensor
    share: float


def row_losses(
    hidden: torch.Tensor,
    head: torch.Tensor,
    bias: torch.Tensor | None,
    labels: torch.Tensor,
    weights: torch.Tensor,
    mask_id: int,
    *,
    unwanted: torch.Tensor | None = None,
    teacher: Teacher | None = None,
    compiled: bool = False,
) -> RowLosses:
    """Cross-entropy of the labelled rows, with the mask token left out as decoding does.

    hidden: (R, d), what the head is given. head: (vocabulary, d), bias: (vocabulary,) or None.
    weights: (R,), of each row in the loss. unwanted: (R,) bool, whose label is not to be said:
    -log(1 - p) in the loss. teacher: changes the target of some other rows in the loss. `nll`
    stays that of the label. Logits are made for a few rows at a time, and their gradient at
    once, so that all of them never exist together. compiled: work on them in one pass, which
    takes a minute to compile.
    """
    work = _compiled_work() if compiled else _work
    found = _HeadLoss.apply(hidden, head, bias, labels, weights, mask_id, unwanted, teacher, work)
    return RowLosses(*found)


def _work(
    logits: torch.Tensor,
    labels: torch.Tensor,
    weights: torch.Tensor,
    unwanted: torch.Tensor | None,
    taught: torch.Tensor | None,
    share: float,
) -> tuple[torch.Tensor, ...]:
    """What becomes of the logits of n rows, which have no infinities.

    unwanted: (n,) bool. taught: (n, vocabulary), the teacher's logits. Returns the loss
    (unweighted), nll, top and choices, each (n,), and the gradient of the weighted loss by the
    logits.
    """
    exact = torch.float64 if logits.dtype == torch.float64 else torch.float32
    wanted = labels[:, None]
    chosen = torch.arange(logits.shape[1], device=logits.device) == wanted
    given, logits = logits.dtype, logits.to(exact)
    best, choices = logits.max(-1)
    powers = torch.exp(logits - best[:, None])
    total = powers.sum(-1)
    label = logits.gather(-1, wanted)[:, 0]
    loss = nll = total.log() + best - label
    slope = powers / total[:, None] - chosen.to(exact)
    if unwanted is not None:
        # from the others' sum, since 1 - p has no digits left where p is close to 1
        others = (powers * ~chosen).sum(-1).clamp_min(torch.finfo(exact).tiny)
        p = torch.exp(-nll)
        away = torch.where(chosen, p[:, None], -p[:, None] * powers / others[:, None])
        loss = torch.where(unwanted, total.log() - others.log(), nll)
        slope = torch.where(unwanted[:, None], away, slope)
    if taught is not None:
        heard = taught.gather(-1, wanted)[:, 0] == taught.amax(-1)
        aim = torch.softmax(taught.to(exact), -1)
        part = share * heard.to(exact)
        loss = nll + part * (label - (aim * logits).sum(-1))
        slope = slope - part[:, None] * (aim - chosen.to(exact))
    return loss, nll, 1 / total, choices, (slope * weights[:, None]).to(given)


@cache
def _compiled_work() -> Callable[..., tuple[torch.Tensor, ...]]:
    return torch.compile(_work, dynamic=True)


def _logits(
    hidden: torch.Tensor, head: torch.Tensor, bias: torch.Tensor | None, mask_id: int
) -> torch.Tensor:
    logits = functional.linear(hidden, head, bias)
    logits[:, mask_id] = -1e30  # times a probability of zero it is zero, as infinity is not
    return logits


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
        unwanted: torch.Tensor | None,
        teacher: Teacher | None,
        work: Callable[..., tuple[torch.Tensor, ...]],
    ) -> tuple[torch.Tensor, ...]:
        exact = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        weights = weights.to(exact)
        slopes = [
            torch.zeros_like(x) if x is not None and wanted else None
            for x, wanted in zip((hidden, head, bias), ctx.needs_input_grad, strict=False)
        ]
        loss, nll, top = (torch.empty_like(weights) for _ in "abc")
        choices = torch.empty_like(labels)
        for rows, lesson in _pieces(len(labels), teacher, hidden.device):
            logits = _logits(hidden[rows], head, bias, mask_id)
            taught, share = None, 0.0
            avoided = None if unwanted is None else unwanted[rows]
            if teacher is not None and lesson is not None:
                taught = _logits(teacher.hidden[lesson], teacher.head, teacher.bias, mask_id)
                share = teacher.share
            loss[rows], nll[rows], top[rows], choices[rows], by_logits = work(
                logits, labels[rows], weights[rows], avoided, taught, share
            )
            if any(slope is not None for slope in slopes):
                _add_slopes(slopes, by_logits, hidden[rows], head, rows)
        ctx.save_for_backward(*slopes)
        ctx.mark_non_differentiable(nll, top, choices)
        return (loss * weights).sum(), nll, top, choices

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> tuple[torch.Tensor | None, ...]:
        saved = cast(tuple[torch.Tensor | None, ...], ctx.saved_tensors)
        grads = [None if x is None else x * slopes[0].to(x.dtype) for x in saved]
        return (*grads, None, None, None, None, None, None)


def _pieces(
    count: int, teacher: Teacher | None, device: torch.device
) -> Iterator[tuple[torch.Tensor, slice | None]]:
    """The rows in pieces: those of the teacher with their place in its rows, then the others."""
    step = HEAD_ROWS if device.type == "cpu" else HEAD_ROWS_GPU
    others = torch.ones(count, dtype=torch.bool, device=device)
    if teacher is not None:
        others[teacher.rows] = False
        for first in range(0, len(teacher.rows), step):
            lesson = slice(first, first + step)
            yield teacher.rows[lesson], lesson
    for rows in others.nonzero()[:, 0].split(step):
        if len(rows):
            yield rows, None


def _add_slopes(
    slopes: Sequence[torch.Tensor | None],
    by_logits: torch.Tensor,
    hidden: torch.Tensor,
    head: torch.Tensor,
    rows: torch.Tensor,
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

    Slot 0 is the clean stream's, slot j that of mask j. right: (R,) bool, the choice is the label.
    Other arguments as in `Batch`, `RowLosses`.
    """
    sure = top > 0.9
    columns = torch.stack([torch.ones_like(top), right, sure, sure & right, nll], dim=1)
    counted = slots >= NEXT
    sums = torch.zeros(size + 1, columns.shape[1], device=slots.device)
    return sums.index_add_(0, slots[counted], columns[counted].float())
