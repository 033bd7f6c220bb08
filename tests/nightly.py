"""Variants of a test of which ``make test`` runs some, and ``make test-nightly`` the others."""

from collections.abc import Iterable
from typing import Any

import pytest


def variants(every: Iterable[Any], daily: Iterable[Any]) -> list[Any]:
    """Return every value for ``parametrize``, those that are not in ``daily`` with the marker ``nightly``.

    Tuples are values of several parameters.
    """
    values, daily = list(every), list(daily)
    unknown = [value for value in daily if value not in values]
    assert not unknown, f"no variants: {unknown}"
    return [value if value in daily else _every_night(value) for value in values]


def _every_night(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.nightly)
