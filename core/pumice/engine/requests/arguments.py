"""Checks of what requests are made of: token ids, adapters, switches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pumice.engine.messages import check_adapters
from pumice.errors import RequestError
from pumice.wording import show_python

NO_PREDICTION = "this model does not predict each token of a text from those before it"


def adapter_scales(adapters: Mapping[str, float], asked: Mapping[str, float] | None) -> tuple[float, ...]:
    """Return the scale of each of the model's ``adapters``: as ``asked``, or its default.

    Raises RequestError for an unknown name, or a scale that is not a number.
    """
    check_adapters(asked)
    if asked is None:
        return tuple(adapters.values())
    for name in asked:
        if name not in adapters:
            available = ", ".join(adapters) or "none"
            raise RequestError(f"adapters: the model has no adapter {name!r}; it has: {available}")
    return tuple(float(asked.get(name, 0.0)) for name in adapters)


def token_ids(ids: Any, what: str) -> list[int]:
    """Return ``ids`` as a list. Raises RequestError, whose message begins with ``what``, unless they are integers."""
    if isinstance(ids, np.ndarray):
        ids = ids.tolist()
    if not isinstance(ids, Sequence) or isinstance(ids, (str, bytes, bytearray)) or not _all(ids, int):
        raise RequestError(f"{what}, not {show_python(ids)}")
    return [int(token) for token in ids]


def check_ids(ids: Sequence[int], n_vocab: int) -> None:
    """Raise RequestError for a token outside of the vocabulary."""
    for token in ids:
        if not 0 <= token < n_vocab:
            raise RequestError(f"token id {show_python(token)} is outside the vocabulary of {n_vocab}")


def check_switch(name: str, value: Any) -> None:
    """Raise RequestError unless ``value`` is true or false."""
    if not isinstance(value, bool):
        raise RequestError(f"{name} must be true or false, not {show_python(value)}")


def _all(values: Any, kind: type) -> bool:
    """Return True for a list of ``kind``; NumPy's integers count as integers, bools do not."""
    kinds = (int, np.integer) if kind is int else kind
    listed = isinstance(values, (Sequence, set, frozenset)) and not isinstance(values, (bytes, bytearray))
    return listed and all(isinstance(value, kinds) and not isinstance(value, bool) for value in values)
