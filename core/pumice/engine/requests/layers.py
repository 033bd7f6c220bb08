"""Functions of a request that see the rows of layers while it runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from pumice.errors import RequestError
from pumice.options import LayerFunction
from pumice.sampler.functions import returned_array
from pumice.wording import show_python

Rows = NDArray[np.float32]


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


class LayerFunctions:
    """The functions of one request by the places where they see rows.

    Attributes:
        sites: these places.
        error: what a function raised, or what is wrong with its rows; no function is called after that.
    """

    def __init__(self, functions: Mapping[str, LayerFunction]) -> None:
        self._functions = functions
        self.sites = functions.keys()
        self.error: RequestError | None = None

    def apply(self, site: str, rows: Rows, positions: NDArray[np.int32]) -> Rows:
        """Return the rows that go on in place of ``rows [n, ...]`` of tokens at ``positions [n]``."""
        if self.error is None:
            try:
                return self._applied(site, rows, positions)
            except RequestError as error:
                self.error = error
            except Exception as error:
                self.error = RequestError(f"on_layer: {site}: raised {type(error).__name__}: {error}")
                self.error.__cause__ = error
        return rows

    def _applied(self, site: str, rows: Rows, positions: NDArray[np.int32]) -> Rows:
        value = self._functions[site](rows.copy(), positions)
        if value is None:
            return rows
        changed = returned_array(f"on_layer: {site}", value, "rows or None", "rows", rows.shape)
        if not np.isfinite(changed).all():
            raise RequestError(f"on_layer: {site}: the returned rows contain NaN or infinity")
        return changed
