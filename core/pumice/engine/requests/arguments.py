"""Check the arguments of requests, where they are sent and where they are received."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pumice.engine.messages import Request
from pumice.errors import RequestError
from pumice.grammar import Grammar, ReasoningBudget
from pumice.options import REQUEST
from pumice.wording import show_python

NO_PREDICTION = "this model does not predict each token of a text from those before it"


def check_arguments(request: Request) -> None:
    """Raise RequestError for an argument of a wrong type or out of range."""
    for name, option in REQUEST.items():
        if (value := getattr(request, name)) is not option.default:
            option.check(value)
    if request.max_tokens is not None and 0 <= request.max_tokens < request.min_tokens:
        raise RequestError(f"min_tokens: {request.min_tokens} is above max_tokens, {request.max_tokens}")
    _check_adapters(request.adapters)
    if not isinstance(request.sampling, Mapping) or not _all(list(request.sampling), str):
        raise RequestError(f"sampling must be a mapping of names to values, not {show_python(request.sampling)}")
    if request.grammar is not None and not isinstance(request.grammar, Grammar):
        raise RequestError(f"grammar must be a Grammar, not {show_python(request.grammar)}")
    if request.budget is not None and not isinstance(request.budget, ReasoningBudget):
        raise RequestError(f"budget must be a ReasoningBudget, not {show_python(request.budget)}")


def adapter_scales(adapters: Mapping[str, float], asked: Mapping[str, float] | None) -> tuple[float, ...]:
    """Return the scale of each of the model's ``adapters``: as ``asked``, or its default.

    Raises RequestError for an unknown name, or a scale that is not a number.
    """
    _check_adapters(asked)
    if asked is None:
        return tuple(adapters.values())
    for name in asked:
        if name not in adapters:
            available = ", ".join(adapters) or "none"
            raise RequestError(f"adapters: the model has no adapter {name!r}; it has: {available}")
    return tuple(float(asked.get(name, 0.0)) for name in adapters)


def _check_adapters(adapters: Any) -> None:
    REQUEST["adapters"].check(adapters)
    for name, scale in (adapters or {}).items():
        if not math.isfinite(scale):
            raise RequestError(f"adapters: the scale of {name!r} must be a finite number, not {show_python(scale)}")


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
