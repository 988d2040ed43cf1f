"""The dual-stream batch by hand, by picture, by perturbation, and against plain forwards."""

from __future__ import annotations

from functools import cache
from textwrap import dedent

import pytest
import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention
from transformers.integrations import flex_attention as transformers_flex

from mars_core.training import objective
from mars_core.training.objective import (
    NEXT,
    PADDING,
    REPEAT,
    UNWANTED,
    Blocks,
    Example,
    Ids,
    Teacher,
    additive_mask,
    block_mask,
    build_batch,
    dense_mask,
    follow,
    row_losses,
    slot_counts,
    with_ending,
)
from tests.tiny import EOS_ID, MASK_ID, VOCAB, tiny_llama, tiny_qwen2, tiny_qwen3

M, E = MASK_ID, EOS_ID
IDS = Ids(mask=M, end=E)
MODELS = {"llama": tiny_llama, "qwen2": tiny_qwen2, "qwen3": tiny_qwen3}
ANY = Example([10, 11, 12, 13, 20, 21, 22, 23, 24], start=4, finished=True)
CUT = Example([30, 31, 32, 40, 41, 42], start=3, finished=False)


@cache
def model(name):
    return MODELS[name](seed=7)


def table(batch):
    """What each labelled row of the first sequence is, (stream, position, id, label, slot)."""
    return [
        (
            int(batch.stream[0, row]),
            int(batch.position_ids[0, row]),
            int(batch.input_ids[0, row]),
            label,
            slot,
        )
        for row, label, slot in zip(
            batch.rows.tolist(), batch.labels.tolist(), batch.slots.tolist(), strict=True
        )
    ]


# ids, start, finished, blocks, then per labelled row: stream, position, token there, label, slot
HAND_WORKED = {
    # position   0   1   2   3   4   5   6   7
    # clean     10  11  12  20  21  22   E   E     E at 7 makes the last block whole
    # noisy     10  11  12   M   M   M   M   M
    # block      0   0   1   1   2   2   3   3
    "finished, B = 2": (
        ([10, 11, 12, 20, 21, 22], 3, True, Blocks(2)),
        [(0, 2, 12, 20, NEXT), (0, 3, 20, 21, NEXT), (0, 4, 21, 22, NEXT),
         (0, 5, 22, E, NEXT), (0, 6, E, E, NEXT),
         (1, 2, 12, 20, REPEAT), (1, 3, M, 21, 1), (1, 4, M, 22, 1),
         (1, 5, M, E, 2), (1, 6, M, E, 1)],
    ),
    # the same, cut by its limit: no end is taught, the last block stays short
    "unfinished, B = 2": (
        ([10, 11, 12, 20, 21, 22], 3, False, Blocks(2)),
        [(0, 2, 12, 20, NEXT), (0, 3, 20, 21, NEXT), (0, 4, 21, 22, NEXT),
         (1, 2, 12, 20, REPEAT), (1, 3, M, 21, 1), (1, 4, M, 22, 1)],
    ),
    # position   0   1   2   3   4   5   6   7
    # clean     10  11  20  21  22  23  24   E     8 + 1 is a multiple of 3 already
    # noisy     10  11   M   M   M   M   M   M
    # block      0   0   1   1   1   2   2   2     phase 1: the first block is one short
    "B = 3, phase 1": (
        ([10, 11, 20, 21, 22, 23, 24], 2, True, Blocks(3, 1)),
        [(0, 1, 11, 20, NEXT), (0, 2, 20, 21, NEXT), (0, 3, 21, 22, NEXT),
         (0, 4, 22, 23, NEXT), (0, 5, 23, 24, NEXT), (0, 6, 24, E, NEXT),
         (1, 1, 11, 20, REPEAT), (1, 2, M, 21, 1), (1, 3, M, 22, 2),
         (1, 4, M, 23, 3), (1, 5, M, 24, 1), (1, 6, M, E, 2)],
    ),
    # position   0   1   2   3
    # clean     10  11  20   E
    # block      0   0   0   0     the response begins inside the prompt's block
    "B = 4": (
        ([10, 11, 20], 2, True, Blocks(4)),
        [(0, 1, 11, 20, NEXT), (0, 2, 20, E, NEXT), (1, 1, 11, 20, REPEAT), (1, 2, M, E, 1)],
    ),
    # B = 1: every mask is the first of its block
    "B = 1": (
        ([10, 20, 21], 1, True, Blocks(1)),
        [(0, 0, 10, 20, NEXT), (0, 1, 20, 21, NEXT), (0, 2, 21, E, NEXT),
         (1, 0, 10, 20, REPEAT), (1, 1, M, 21, 1), (1, 2, M, E, 1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("trim", [False, True])
@pytest.mark.parametrize("name", HAND_WORKED)
def test_hand_worked_sequences(name, trim):
    (ids, start, finished, blocks), wanted = HAND_WORKED[name]
    batch = build_batch([Example(ids, start, finished)], [[blocks]], IDS, trim=trim)
    assert table(batch) == wanted
    only_noisy = build_batch(
        [Example(ids, start, finished)], [[blocks]], IDS, clean_labels=False, trim=trim
    )
    assert table(only_noisy) == [row for row in wanted if row[0] == 1]


def test_the_whole_batch_by_hand():
    """Two copies of one sequence beside a shorter one: every tensor, nothing left out."""
    batch = build_batch(
        [Example([10, 20, 21], 1, True), Example([30, 31, 40], 2, False)],
        [[Blocks(2), Blocks(2, 1)], [Blocks(2)]],
        IDS,
        trim=False,
    )
    # the first copy is whole at 4 tokens, the second at 5
    assert batch.input_ids.tolist() == [
        [10, 20, 21, E, E, 10, M, M, M, M, 10, M, M, M, M],
        [30, 31, 40, 30, 31, M, E, E, E, E, E, E, E, E, E],
    ]
    assert batch.position_ids.tolist() == [
        [0, 1, 2, 3, 4] * 3,
        [0, 1, 2] * 2 + [0] * 9,
    ]
    assert batch.stream.tolist() == [[0] * 5 + [1] * 5 + [2] * 5, [0] * 3 + [1] * 3 + [PADDING] * 9]
    assert batch.begin.tolist() == [
        [0, 0, 0, 0, 0, 0, 0, 2, 2, 4, 0, 1, 1, 3, 3],
        [0, 0, 0, 0, 0, 2] + [0] * 9,
    ]
    assert batch.rows.tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 16, 19]
    assert batch.labels.tolist() == [20, 21, E, E] * 3 + [40] * 2
    assert batch.slots.tolist() == [0, 0, 0, 0, -1, 1, 1, 2, -1, 1, 2, 1, 0, -1]
    assert torch.allclose(
        batch.share, torch.tensor([1 / 8] * 4 + [1 / 16] * 8 + [1 / 2] * 2), atol=1e-7
    )


def test_trimmed_rows_by_hand():
    """Noisy rows of prompt blocks are gone, and the last of each stream."""
    batch = build_batch([Example([10, 11, 12, 13, 14, 20, 21], 5, False)], [[Blocks(2)]], IDS)
    assert batch.input_ids.tolist() == [[10, 11, 12, 13, 14, 20, 14, M]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 4, 5, 4, 5]]
    assert batch.begin.tolist() == [[0] * 6 + [4, 4]]


# rows: clean 0..5, then noisy 0..5; columns the same; B = 2, and B = 3 from phase 1
PICTURES = {
    Blocks(2): """
        #..... ......
        ##.... ......
        ###... ......
        ####.. ......
        #####. ......
        ###### ......
        ...... #.....
        ...... ##....
        ##.... ..#...
        ##.... ..##..
        ####.. ....#.
        ####.. ....##
    """,
    Blocks(3, 1): """
        #..... ......
        ##.... ......
        ###... ......
        ####.. ......
        #####. ......
        ###### ......
        ...... #.....
        ...... ##....
        ##.... ..#...
        ##.... ..##..
        ##.... ..###.
        #####. .....#
    """,
}


@pytest.mark.parametrize("blocks", PICTURES, ids=str)
def test_the_mask_as_a_picture(blocks):
    batch = build_batch([Example([1, 1, 1, 1, 1, 1], 2, False)], [[blocks]], IDS, trim=False)
    seen = dense_mask(batch.stream, batch.position_ids, batch.begin)[0, 0]
    lines = ["".join("#" if x else "." for x in row) for row in seen.tolist()]
    assert [f"{line[:6]} {line[6:]}" for line in lines] == dedent(PICTURES[blocks]).split("\n")[
        1:-1
    ]


@pytest.mark.parametrize("phase", range(5))
@pytest.mark.parametrize("size", range(1, 6))
def test_the_mask_is_the_methods_table(size, phase):
    """docs/method.md word for word: "clean j with j <= t", "same block with j <= t", ..."""
    blocks = Blocks(size, phase % size)
    batch = build_batch([ANY], [[blocks, Blocks(3)]], IDS, trim=False)
    seen = dense_mask(batch.stream, batch.position_ids, batch.begin)[0, 0]
    where = list(zip(batch.stream[0].tolist(), batch.position_ids[0].tolist(), strict=True))
    for q, (query, t) in enumerate(where):
        size_, phase_ = (0, 0) if query == 0 else ((size, phase % size), (3, 0))[query - 1]
        for k, (key, j) in enumerate(where):
            if query == 0:
                wanted = key == 0 and j <= t
            else:
                block = [(x + phase_) // size_ for x in (j, t)]
                wanted = (key == query and block[0] == block[1] and j <= t) or (
                    key == 0 and block[0] < block[1]
                )
            assert bool(seen[q, k]) == wanted, (query, t, key, j)


def logits_of(model, batch, mask=dense_mask):
    """All rows' logits, (N, T, vocabulary)."""
    seen = mask(batch.stream, batch.position_ids, batch.begin)
    return model(
        input_ids=batch.input_ids,
        position_ids=batch.position_ids,
        attention_mask=seen,
        use_cache=False,
    ).logits


def labelled_logits(model, batch):
    return logits_of(model, batch).flatten(0, 1)[batch.rows]


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_no_labelled_token_leaks(name):
    """Another token at p moves no row that predicts p or anything before it, and moves others."""
    for size in range(1, 6):
        for phase in {0, 1 % size, size - 1}:
            cuts = [[Blocks(size, phase), Blocks(2, 1)]]
            before = build_batch([ANY], cuts, IDS)
            reference = labelled_logits(model(name), before)
            predicted = before.position_ids.flatten()[before.rows] + 1
            for p in range(ANY.start, len(ANY.ids)):
                ids = list(ANY.ids)
                ids[p] = 200
                after = build_batch([Example(ids, ANY.start, True)], cuts, IDS)
                moved = (labelled_logits(model(name), after) - reference).abs().amax(-1)
                assert moved[predicted <= p].max() < 1e-12, (size, phase, p)
                assert moved[predicted == p + 1].max() > 1e-3  # the clean row that reads p
                streams = before.stream.flatten()[before.rows]
                readers = (streams == 1) & (before.begin.flatten()[before.rows] > p)
                assert not readers.any() or moved[readers].min() > 1e-6


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_the_streams_are_plain_forwards(name):
    """Clean rows are those of an ordinary forward; a block's those of its prefix and masks."""
    tiny = model(name)
    for size in range(1, 6):
        blocks = Blocks(size, size // 2)
        batch = build_batch([ANY, CUT], [[blocks], [Blocks(4)]], IDS)
        logits = logits_of(tiny, batch)
        for n, (example, cut) in enumerate(((ANY, blocks), (CUT, Blocks(4)))):
            tokens = with_ending(example, [cut], E)
            plain = tiny(torch.tensor([tokens])).logits[0]
            clean = logits[n, : len(tokens) - 1]
            assert (clean - plain[:-1]).abs().max() < 1e-12
            noisy = tokens[: example.start] + [M] * (len(tokens) - example.start)
            for row in torch.nonzero(batch.stream[n] == 1).flatten().tolist():
                t = int(batch.position_ids[n, row])
                begin = cut.begin(t)
                alone = tiny(torch.tensor([tokens[:begin] + noisy[begin : t + 1]])).logits[0, -1]
                assert (logits[n, row] - alone).abs().max() < 1e-12


@torch.no_grad()
def test_neither_padding_nor_trimming_matters():
    tiny = model("llama")
    alone = build_batch([CUT], [[Blocks(3)]], IDS)
    padded = build_batch([ANY, CUT], [[Blocks(3), Blocks(3, 2)], [Blocks(3)]], IDS)
    whole = build_batch([CUT], [[Blocks(3)]], IDS, trim=False)
    assert whole.input_ids.shape[1] > alone.input_ids.shape[1]
    wanted = labelled_logits(tiny, alone)
    assert torch.allclose(labelled_logits(tiny, padded)[-len(wanted) :], wanted, atol=1e-12)
    assert torch.allclose(labelled_logits(tiny, whole), wanted, atol=1e-12)
    assert torch.isfinite(logits_of(tiny, padded)).all()


def test_an_additive_mask_says_the_same():
    batch = build_batch([ANY, CUT], [[Blocks(2), Blocks(2, 1)], [Blocks(3)]], IDS)
    where = (batch.stream, batch.position_ids, batch.begin)
    added = additive_mask(*where, torch.bfloat16)
    assert torch.equal(added == 0, dense_mask(*where))
    assert added.min() == torch.finfo(torch.bfloat16).min


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_flex_attention_agrees_with_sdpa(name, monkeypatch):
    """Through transformers, its compiled kernel replaced by the eager one.

    On a CPU the compiled one takes most of a minute to build, knows no float64 and has no
    backward; mask and call are the same.
    """
    monkeypatch.setattr(
        transformers_flex,
        "compile_friendly_flex_attention",
        lambda *args, training, **options: flex_attention(*args, **options),
    )
    tiny = MODELS[name](seed=7)
    batch = build_batch([ANY, CUT], [[Blocks(4, 1), Blocks(4, 3)], [Blocks(2)]], IDS, trim=False)
    wanted = logits_of(tiny, batch)
    tiny.set_attn_implementation("flex_attention")
    assert torch.allclose(logits_of(tiny, batch, block_mask), wanted, atol=1e-12)


def plain_losses(hidden, head, bias, labels, weights):
    """The formula, with the mask's column removed by hand."""
    logits = functional.linear(hidden, head, bias)
    kept = [i for i in range(logits.shape[1]) if i != M]
    columns = torch.tensor([kept.index(label) for label in labels.tolist()])
    nll = functional.cross_entropy(logits[:, kept], columns, reduction="none")
    return (nll * weights).sum(), nll, logits[:, kept].softmax(-1).amax(-1)


@pytest.mark.parametrize("with_bias", [False, True])
def test_row_losses_are_cross_entropy(with_bias, monkeypatch):
    monkeypatch.setattr(objective, "HEAD_ROWS", 4)  # several pieces, the last one short
    generator = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    hidden, head, bias = draw(11, 8), draw(VOCAB, 8), draw(VOCAB) if with_bias else None
    labels = torch.tensor([5 + i for i in range(11)])
    weights = torch.linspace(0.1, 1, 11, dtype=torch.float64)
    parameters = [x for x in (hidden, head, bias) if x is not None]
    wanted = plain_losses(hidden, head, bias, labels, weights)
    found = row_losses(hidden, head, bias, labels, weights, M)
    assert torch.allclose(found.loss, wanted[0])
    assert torch.allclose(found.nll, wanted[1])
    assert torch.allclose(found.top, wanted[2])
    best = functional.linear(hidden, head, bias).index_fill(1, torch.tensor([M]), -torch.inf)
    assert torch.equal(found.choices, best.argmax(-1))
    slopes = torch.autograd.grad(3 * wanted[0], parameters)
    for slope, by_formula in zip(
        torch.autograd.grad(3 * found.loss, parameters), slopes, strict=True
    ):
        assert torch.allclose(slope, by_formula, atol=1e-12)
    frozen = row_losses(hidden, head.detach(), None, labels, weights, M)
    assert torch.autograd.grad(frozen.loss, [hidden])[0].abs().sum() > 0


def test_a_teacher_is_heard_where_it_would_choose_the_label(monkeypatch):
    """Soft targets in those rows, labels in the others, against cross-entropy by hand."""
    monkeypatch.setattr(objective, "HEAD_ROWS", 4)
    generator = torch.Generator().manual_seed(4)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    hidden, head, theirs = draw(11, 8).requires_grad_(), draw(VOCAB, 8), draw(6, 8)
    their_head, their_bias = draw(VOCAB, 8), draw(VOCAB)
    places = torch.tensor([3, -1, 0, -1, 5, 1, -1, 2, -1, -1, 4])
    logits = functional.linear(theirs, their_head, their_bias)
    logits[:, M] = -torch.inf
    labels = torch.tensor([5 + i for i in range(11)])
    agreeing = [0, 4, 7]  # at the borders of pieces, too
    labels[agreeing] = logits[places[agreeing]].argmax(-1)
    weights = torch.linspace(0.1, 1, 11, dtype=torch.float64)
    rows = (places >= 0).nonzero()[:, 0]
    teacher = Teacher(theirs[places[rows]], their_head, their_bias, rows, 0.3)
    found = row_losses(hidden, head, None, labels, weights, M, teacher=teacher)

    targets = functional.one_hot(labels, VOCAB).double()
    heard = [n for n in range(11) if places[n] >= 0 and logits[places[n]].argmax() == labels[n]]
    assert set(agreeing) <= set(heard)
    assert len(heard) < 6
    targets[heard] = 0.7 * targets[heard] + 0.3 * logits[places[heard]].softmax(-1)
    kept = [i for i in range(VOCAB) if i != M]
    ours = functional.linear(hidden, head)[:, kept]
    wanted = functional.cross_entropy(ours, targets[:, kept], reduction="none")
    assert torch.allclose(found.loss, (wanted * weights).sum())
    plain = row_losses(hidden, head, None, labels, weights, M)
    assert torch.allclose(found.nll, plain.nll)
    assert found.loss != plain.loss
    for slope, by_formula in zip(
        torch.autograd.grad(found.loss, [hidden]),
        torch.autograd.grad((wanted * weights).sum(), [hidden]),
        strict=True,
    ):
        assert torch.allclose(slope, by_formula, atol=1e-12)


def test_unwanted_tokens_are_pushed_away(monkeypatch):
    """-log(1 - p) by autograd, beside rows that learn their label."""
    monkeypatch.setattr(objective, "HEAD_ROWS", 4)
    generator = torch.Generator().manual_seed(5)
    hidden = torch.randn(11, 8, generator=generator, dtype=torch.float64).requires_grad_()
    head = torch.randn(VOCAB, 8, generator=generator, dtype=torch.float64).requires_grad_()
    labels = torch.tensor([5 + i for i in range(11)])
    weights = torch.linspace(0.1, 1, 11, dtype=torch.float64)
    unwanted = torch.arange(11) % 3 == 0
    found = row_losses(hidden, head, None, labels, weights, M, unwanted=unwanted)
    _, nll, _ = plain_losses(hidden, head, None, labels, weights)
    wanted = (torch.where(unwanted, -torch.log1p(-torch.exp(-nll)), nll) * weights).sum()
    assert torch.allclose(found.loss, wanted)
    assert torch.allclose(found.nll, nll)
    slopes = torch.autograd.grad(found.loss, [hidden, head])
    for slope, by_formula in zip(slopes, torch.autograd.grad(wanted, [hidden, head]), strict=True):
        assert torch.allclose(slope, by_formula, atol=1e-12)


def test_a_certain_token_is_pushed_away_too():
    """Where 1 - p rounds to 0 the loss stays finite, and its slope is not lost."""
    head = torch.zeros(VOCAB, 8)
    head[9] = 10.0
    hidden = torch.full((1, 8), 2.0).requires_grad_()
    arguments = (hidden, head, None, torch.tensor([9]), torch.ones(1), M)
    assert row_losses(*arguments).nll.item() == 0
    found = row_losses(*arguments, unwanted=torch.tensor([True]))
    assert torch.isfinite(found.loss)
    slope = torch.autograd.grad(found.loss, [hidden])[0]
    assert torch.allclose(slope, torch.full((1, 8), 10.0))


def test_a_stuck_answer_is_shown_in_the_clean_stream_alone():
    stuck = Example([10, 11, 20, 21, 20, 21, 20], start=2, finished=False, unwanted=[5, 6])
    batch = build_batch([stuck, CUT], [[], [Blocks(2)]], IDS)
    alone = table(build_batch([stuck], [[]], IDS))
    assert alone == [(0, 4, 20, 21, UNWANTED), (0, 5, 21, 20, UNWANTED)]
    assert batch.stream[0].tolist() == [0] * 6 + [PADDING] * (batch.stream.shape[1] - 6)
    assert batch.share[:2].tolist() == [1 / 4, 1 / 4]
    assert batch.slots.tolist().count(UNWANTED) == 2
    ones = torch.ones(len(batch.slots))
    counts = slot_counts(batch.slots, ones, ones, ones > 0, 2)
    assert counts[NEXT, 0] == (batch.slots == NEXT).sum()


def test_masks_follow_the_clean_stream_by_hand():
    """Where its choice is not the data's token, masks behind it in the block have no label."""
    # place      0   1   2   3   4   5   6   7   8   9  10
    # ANY       10  11  12  13  20  21  22  23  24   E   E    E ends the last block of both copies
    # choices                20  99  22  23  24  98   E
    # B = 3       0   0   0   1   1   1   2   2   2
    batch = build_batch([ANY], [[Blocks(3)]], IDS)
    clean, noisy = batch.slots == NEXT, batch.slots != NEXT
    choices = batch.labels[clean].clone()
    assert batch.position_ids[0, batch.rows[clean]].tolist() == list(range(3, 3 + len(choices)))
    choices[1], choices[5] = 99, 98  # instead of 21 at 5, and of E at 9
    labels, followed = follow(
        batch.position_ids,
        batch.rows[clean],
        batch.labels[clean],
        choices,
        batch.rows[noisy],
        batch.slots[noisy],
    )
    found = {
        int(batch.position_ids[0, row]): (slot, label, kept)
        for row, slot, label, kept in zip(
            batch.rows[noisy].tolist(),
            batch.slots[noisy].tolist(),
            labels.tolist(),
            followed.tolist(),
            strict=True,
        )
    }
    expected = {
        3: (REPEAT, 20, True),
        4: (1, 99, True),  # after 20, which was chosen, AR says 99
        5: (2, 22, False),  # 21 was not chosen: what AR says behind 99 is not known
        6: (1, 23, True),
        7: (2, 24, True),
        8: (3, 98, True),
        9: (1, E, False),
    }
    assert {place: found[place] for place in expected} == expected


def test_the_loss_is_normalised_per_sequence():
    """A sequence counts the same however long its answer, in both streams and over copies."""
    batch = build_batch([ANY, CUT], [[Blocks(2), Blocks(2, 1)], [Blocks(3)]], IDS)
    which = batch.rows // batch.input_ids.shape[1]
    for noisy in (False, True):
        for n in (0, 1):
            rows = (which == n) & ((batch.slots != NEXT) == noisy)
            assert batch.share[rows].sum().item() == pytest.approx(1 / 2)
            assert len(set(batch.share[rows].tolist())) == 1


def test_slot_counts_by_hand():
    slots = torch.tensor([0, 0, 1, 2, -1, 1])
    nll = torch.tensor([1.0, 2.0, 3.0, 4.0, 50.0, 5.0])
    top = torch.tensor([0.95, 0.2, 0.91, 0.9, 0.99, 0.99])
    right = torch.tensor([True, True, False, True, True, True])
    #        rows right  sure  sure and right  nll
    assert slot_counts(slots, nll, top, right, 3).tolist() == [
        [2, 2, 1, 1, 3],
        [2, 1, 2, 1, 8],
        [1, 1, 0, 0, 4],
        [0, 0, 0, 0, 0],
    ]
