"""Which rows a forward has, and who sees whom."""

from __future__ import annotations

import pytest
import torch

from mars_core.cache import Session
from mars_core.window import Window
from tests.tiny import MASK_ID, tiny_llama, tiny_qwen2


def window(groups, pending=(7,), drafts=(), start=5, mask_id=MASK_ID):
    return Window(pending, drafts, groups, start, mask_id)


def picture(seen):
    return ["".join("x" if cell else "." for cell in row) for row in seen.tolist()]


def test_grouped_rows_by_hand():
    # row        0   1   2   3   4   5   6   7   8
    #            p  d1  d2  0a  0b  1a  1b  2a  2b
    found = window((2, 2, 2), drafts=(20, 21))
    assert found.ids == [7, 20, 21, *[MASK_ID] * 6]
    assert found.positions == [5, 6, 7, 6, 7, 7, 8, 8, 9]
    assert [found.rows_of(group) for group in (0, 1, 2)] == [slice(3, 5), slice(5, 7), slice(7, 9)]
    assert picture(found.visibility) == [
        "x........",
        "xx.......",
        "xxx......",
        "x..x.....",
        "x..xx....",
        "xx...x...",
        "xx...xx..",
        "xxx....x.",
        "xxx....xx",
    ]


@pytest.mark.parametrize(
    ("groups", "drafts", "positions"),
    [
        ((0,), (), [5, 6]),
        ((3,), (), [5, 6, 7, 8, 9]),
        ((0, 0, 2), (20, 21), [5, 6, 7, 8, 9, 10]),
        ((0, 0), (20,), [5, 6, 7]),
    ],
)
def test_masks_behind_everything_are_plainly_causal(groups, drafts, positions):
    found = window(groups, pending=(7, 8), drafts=drafts)
    assert found.visibility is None
    assert found.positions == positions
    assert len(found.ids) == len(positions)


def test_without_masks_no_mask_token_is_needed():
    assert window((0, 0), drafts=(20,), mask_id=None).ids == [7, 20]


@pytest.mark.parametrize("make", [tiny_llama, tiny_qwen2])
@pytest.mark.parametrize("groups", [(2, 3, 1, 2), (3, 0, 2, 0), (0, 1, 0, 0)])
@torch.no_grad()
def test_a_group_is_a_forward_of_its_own(make, groups):
    """Its logits are those of the prefix, the drafts before it and its masks alone."""
    model = make(seed=3)
    prefix, pending, drafts = [10, 11, 12, 13, 14], (15, 16), (20, 21, 22)
    session = Session(model, 64)
    session.prefill([prefix])
    found = window(groups, pending, drafts, start=len(prefix))
    logits = session.forward([found.fed()])[0]
    real = model(torch.tensor([[*prefix, *pending, *drafts]])).logits[0, len(prefix) :]
    assert (logits[: found.real] - real).abs().max() < 1e-12
    for group, masks in enumerate(groups):
        alone = [*prefix, *pending, *drafts[:group], *[MASK_ID] * masks]
        wanted = model(torch.tensor([alone])).logits[0, len(alone) - masks :]
        assert masks == 0 or (logits[found.rows_of(group)] - wanted).abs().max() < 1e-12
