"""Formulas, and how a second operand goes along the first."""

import itertools
import math

import numpy as np
import pytest

from pumice.graph import Tensor, broadcast_walk
from pumice.graph.formula import exp, named


def test_a_formula_is_computed():
    x, y = named("x"), named("y")
    functions = {"exp": math.exp, "mul": lambda a, b: a * b, "add": lambda a, b: a + b}
    assert (exp(x) * y + 1).fold({"x": 0.0, "y": 3.0}, float, functions) == 4


@pytest.mark.parametrize(
    ("shape", "other"),
    [
        *(((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1,)), ((3, 2, 4), (3, 2, 1)), ((3, 2, 5, 4), (2, 1, 4))),
        ((3, 2, 5, 4), (3, 1, 5, 1)),
    ],
)
def test_a_walk_finds_the_value_that_broadcasting_puts_there(shape, other):
    """Rows are a named size where both have them."""
    x = Tensor("x", ("n_tokens", *shape[1:]), "f32")
    y = Tensor("y", ("n_tokens", *other[1:]) if len(other) == len(shape) else other, "f32")
    walk = broadcast_walk(x, y)
    rows = range(shape[0]), range(walk.n_a), range(walk.n_b), range(walk.width)
    found = [
        row * walk.y_row + a * walk.y_a + b * walk.y_b + i * walk.y_value for row, a, b, i in itertools.product(*rows)
    ]
    expected = np.broadcast_to(np.arange(math.prod(other)).reshape(other), shape)
    assert found == expected.reshape(-1).tolist()
