"""Checks of what requests are made of: token ids, adapters, switches, layers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from pumice.engine.messages import check_adapters, unknown_adapter
from pumice.errors import RequestError
from pumice.wording import show_python

NO_PREDICTION = "this model does not predict each token of a text from those before it"


Scales = Sequence[tuple[str, float]]
"""The adapters that a job uses, by key, with their scales."""


class AdapterNames:
    """The adapters of a model by name: the key of each in the graphs, and its scale for requests that name none.

    ``named`` is replaced as a whole when adapters come or go.
    """

    def __init__(self, named: Mapping[str, tuple[str, float]] | None = None) -> None:
        self.named = dict(named or {})

    def scales(self, asked: Mapping[str, float] | None) -> Scales:
        """Return the adapters to use: as ``asked``, or as configured.

        Raises RequestError for an unknown name, or a scale that is not a number.
        """
        check_adapters(asked)
        named = self.named
        if asked is None:
            asked = {name: scale for name, (_, scale) in named.items()}
        sums: dict[str, float] = {}
        for name, scale in asked.items():
            if name not in named:
                raise unknown_adapter(name, named)
            key, _ = named[name]
            sums[key] = sums.get(key, 0.0) + float(scale)
        return tuple((key, scale) for key, scale in sorted(sums.items()) if scale)


def token_ids(ids: Any, what: str) -> list[int]:
    """Return ``ids`` as a list. Raises RequestError, whose message begins with ``what``, unless they are integers."""
    if isinstance(ids, np.ndarray):
        ids = ids.tolist()
    is_list = isinstance(ids, Sequence) and not isinstance(ids, (str, bytes, bytearray))
    if not is_list or not all(isinstance(id, (int, np.integer)) and not isinstance(id, bool) for id in ids):
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


def site_name(layer: int | str, sites: Collection[str], option: str) -> str:
    """Return the name of a place in the graph. Raises RequestError, which begins with ``option``, for another one."""
    name = str(layer)
    if name in sites and not isinstance(layer, bool):
        return name
    layers = [int(site) for site in sites if site.isdecimal()]
    if not layers:
        raise RequestError(f"{option}: the layers of this model have no residual stream that could be read")
    parts = sorted({site.partition(".")[2] for site in sites if "." in site})
    named = "".join(f", '{max(layers)}.{part}'" for part in parts)
    raise RequestError(
        f"{option}: the model has no layer {show_python(layer)}; it has 0 to {max(layers)}{named} and 'embeddings'"
    )
