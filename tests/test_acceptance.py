"""The acceptance rule by hand."""

import pytest

from mars_core.acceptance import accepted_by_tau

NAN = float("nan")


@pytest.mark.parametrize(
    ("confidences", "tau", "count"),
    [
        ([0.1], 0.9, 1),  # the first is AR's own: always
        ([0.1, 0.95, 0.95, 0.5, 0.99], 0.9, 3),  # stops at the first that fails
        ([0.1, 0.9], 0.9, 2),  # at the threshold is enough
        ([0.1, 0.0, 0.0], 0.0, 3),
        ([1.0, 1.0, 1.0], 1.0, 1),  # enforced
        ([0.5, NAN, 1.0], 0.0, 1),
    ],
)
def test_accepted_by_tau(confidences, tau, count):
    assert accepted_by_tau(confidences, [True] * len(confidences), tau) == count


def test_a_draw_that_is_not_the_most_likely_token_ends_the_pass():
    assert accepted_by_tau([0.9, 0.9, 0.9], [False, True, False], 0.5) == 2
