"""Variants and examples of a test of which ``make test`` runs some, and ``make test-nightly`` the others or more."""

import os
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest

EXAMPLES = int(os.environ.get("PUMICE_EXAMPLES", "30"))  # of each property; 3,000 at night


def variants(every: Iterable[Any], daily: Iterable[Any]) -> list[Any]:
    """Return every value for ``parametrize``, those that are not in ``daily`` with the marker ``nightly``.

    Tuples are values of several parameters.
    """
    values, daily = list(every), list(daily)
    unknown = [value for value in daily if value not in values]
    assert not unknown, f"no variants: {unknown}"
    return [value if value in daily else _every_night(value) for value in values]


def crossed(*axes: Sequence[Any]) -> list[Any]:
    """Return every combination of the axes' values for ``parametrize``: every night, and some in every run.

    Those go through all axes at once, so that each value is in one of them.
    """
    turns = range(max(map(len, axes)))
    return variants(product(*axes), [tuple(axis[turn % len(axis)] for axis in axes) for turn in turns])


def _every_night(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.nightly)
