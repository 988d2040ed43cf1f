"""Word problems with written-out solutions: made to order, with the truth worked out.

A problem is asked in a few sentences and solved in 2 to 6 lines of working; the last line of a
solution is always "The answer is 60." Some templates, and of every other one some numbers, are
kept out of training for `mars_core.evaluation.arithmetic`.
"""

from mars_core.training.arithmetic.answer import answer_of, is_right
from mars_core.training.arithmetic.generate import TEMPLATES, problems, training_examples
from mars_core.training.arithmetic.sums import sum_rows
from mars_core.training.arithmetic.template import Problem, Split

__all__ = [
    "TEMPLATES",
    "Problem",
    "Split",
    "answer_of",
    "is_right",
    "problems",
    "sum_rows",
    "training_examples",
]
