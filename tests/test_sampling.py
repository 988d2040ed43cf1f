"""Readings against transformers' and torch's own arithmetic."""

import math

import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor

from mars_core.config import DecodeConfig
from mars_core.sampling import Reader, gumbel, keep_nucleus, penalise


def logits(rows=6, size=50, seed=0):
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed)) * 4


def read(values, config=None, suppressed=()):
    reader = Reader(config or DecodeConfig(), tuple(suppressed))
    return reader.read_rows(values, [()] * len(values), [(0, i) for i in range(len(values))])


def test_metrics():
    values = logits()
    probs = values.softmax(-1)
    top = probs.topk(2).values
    wanted = {
        "probability": top[:, 0],
        "margin": top[:, 0] - top[:, 1],
        "entropy": (-torch.distributions.Categorical(probs=probs).entropy()).exp(),
    }
    for metric, expected in wanted.items():
        found = [r.confidence for r in read(values, DecodeConfig(metric=metric))]
        assert found == pytest.approx(expected.tolist(), rel=1e-5)
        assert all(0 <= value <= 1 for value in found)


def test_alternatives_are_the_best_in_order_with_their_probabilities():
    values = logits()
    for row, reading in zip(values.softmax(-1), read(values), strict=True):
        assert [i for i, _ in reading.alternatives] == row.argsort(descending=True)[:5].tolist()
        assert [p for _, p in reading.alternatives] == pytest.approx(row.topk(5).values.tolist())
        assert reading.prob == pytest.approx(reading.alternatives[0][1])
    assert read(values, DecodeConfig(alternatives=0))[0].alternatives == ()


def test_softmax_is_float32_even_for_bfloat16_logits():
    """In bfloat16 everything from .998 up would be 1."""
    values = torch.tensor([[8.0, 0.0, 0.0, 1.0]], dtype=torch.bfloat16)
    assert read(values)[0].confidence == pytest.approx(
        values.double().softmax(-1).max().item(), abs=1e-6
    )


def test_ties_go_to_the_lowest_id_as_in_argmax():
    assert read(torch.tensor([[0.0, 3.0, 3.0, 3.0]]))[0].token == 1


def test_certainty_is_exactly_one_and_no_more():
    reading = read(torch.tensor([[200.0, 0.0, 0.0]]), DecodeConfig(metric="entropy"))[0]
    assert reading.confidence == reading.prob == 1.0


def test_penalty_is_that_of_transformers():
    values, history = logits(), [3, 7, 7, 11]
    theirs = RepetitionPenaltyLogitsProcessor(1.3)(
        torch.tensor([history] * len(values)), values.clone()
    )
    for row in values:
        penalise(row, history, 1.3)
    assert torch.equal(values, theirs)


def test_penalty_counts_tokens_chosen_in_the_same_forward():
    """Two masks that would both say token 2: the second has seen it."""
    values = torch.tensor([[0.0, 1.0, 2.0], [0.0, 1.0, 1.2]])
    reader = Reader(DecodeConfig(repetition_penalty=2.0), ())
    assert [r.token for r in reader.read_window(values, [0], [], row=0)] == [2, 1]
    # known tokens stand for the choices where they are given
    assert [r.token for r in reader.read_window(values, [0], [1], row=0)] == [2, 2]


def test_no_run_is_repeated():
    """After 5 6 5 the id 6 would repeat 5 6; a history that is too short forbids nothing."""
    values = torch.zeros(3, 8)
    values[:, 6] = 1
    reader = Reader(DecodeConfig(no_repeat_ngram_size=2), ())
    histories = [[5, 6, 5], [6, 5, 7], []]
    readings = reader.read_rows(values, histories, [(0, 3), (1, 3), (2, 0)])
    assert [reading.token for reading in readings] == [0, 6, 6]
    # the second mask has seen the first one's choice
    window = reader.read_window(values[:2], [6, 4, 1], [], row=0)
    assert [reading.token for reading in window] == [6, 6]
    window = reader.read_window(values[:3], [6], [], row=0)
    assert [reading.token for reading in window] == [6, 0, 6]


def test_nucleus_is_the_smallest_that_reaches_top_p():
    scores = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()[:, [2, 0, 3, 1]]
    kept = {p: (keep_nucleus(scores, p) > -math.inf)[0].tolist() for p in (0.4, 0.6, 0.9, 1.0)}
    assert kept[0.4] == [False, True, False, False]
    assert kept[0.6] == [False, True, False, True]
    assert kept[0.9] == [True, True, False, True]
    assert all(kept[1.0])


def test_noise_is_keyed_and_gumbel():
    assert torch.equal(gumbel(1, 2, 3, 100), gumbel(1, 2, 3, 100))
    for other in ((2, 2, 3), (1, 3, 3), (1, 2, 4)):
        assert not torch.equal(gumbel(1, 2, 3, 100), gumbel(*other, 100))
    # longer vocabularies begin the same, and positions do not overlap
    assert torch.equal(gumbel(1, 2, 3, 100), gumbel(1, 2, 3, 200)[:100])
    noise = gumbel(0, 0, 0, 200_000)
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.02)
    assert noise.var().item() == pytest.approx(math.pi**2 / 6, abs=0.03)


def test_a_tiny_temperature_is_greedy():
    values = logits()
    cold = [r.token for r in read(values, DecodeConfig(temperature=1e-40))]
    assert cold == values.argmax(-1).tolist()


def test_draws_follow_the_distribution():
    """Chi-square over 8 tokens, temperature included."""
    scores = logits(1, 8, seed=3) / 4
    reader = Reader(DecodeConfig(temperature=0.7, seed=9), ())
    draws = 4000
    rows = scores.expand(draws, -1)
    readings = reader.read_rows(rows, [()] * draws, [(0, i) for i in range(draws)])
    counts = torch.bincount(torch.tensor([r.token for r in readings]), minlength=8)
    expected = (scores[0] / 0.7).softmax(-1) * draws
    chi_square = ((counts - expected) ** 2 / expected).sum().item()
    assert chi_square < 24.3  # .999 quantile, 7 degrees of freedom
    modal = int(scores.argmax())
    assert all(r.modal == (r.token == modal) for r in readings)
