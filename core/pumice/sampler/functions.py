"""Functions of a request: as a sampler, they see all logits before each token; others see the rows of layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from pumice.errors import RequestError
from pumice.options.functions import LayerFunction, LogitsProcessor, StoppingCriteria
from pumice.sampler.candidates import Candidates
from pumice.sampler.contract import Sampler, SamplerContext
from pumice.wording import show_python

Logits = NDArray[np.float32]


class Functions(Sampler):
    """Calls ``process`` and ``stops`` before each token that no mask forces.

    Attributes:
        stopped: True once ``stops`` has ended the text.
    """

    def __init__(self, process: LogitsProcessor | None, stops: StoppingCriteria | None) -> None:
        self._process = process
        self._stops = stops
        self._tokens: list[int] = []
        self._n_vocab = 0
        self.stopped = False

    def start(self, context: SamplerContext) -> None:
        self._n_vocab = context.n_vocab

    def accept(self, token: int) -> None:
        self._tokens.append(token)

    def apply(self, candidates: Candidates) -> None:
        logits = np.full(self._n_vocab, -np.inf, np.float32)
        logits[candidates.ids] = candidates.logits
        if self._stops is not None:
            self.stopped = self._is_end(self._stops, logits)
        if self._process is not None:
            candidates.logits = self._processed(self._process, logits)[candidates.ids]
            candidates.sorted = False
            if not candidates.logits.max() > -np.inf:
                raise RequestError("logits_processor: every token that may come next has the logit -inf")

    def _is_end(self, stops: StoppingCriteria, logits: Logits) -> bool:
        value = _call("stopping_criteria", stops, self._ids, logits.copy())
        if not isinstance(value, (bool, np.bool_)):
            raise RequestError(f"stopping_criteria: must return True or False, not {show_python(value)}")
        return bool(value)

    def _processed(self, process: LogitsProcessor, logits: Logits) -> Logits:
        value = _call("logits_processor", process, self._ids, logits)
        if value is None:
            raise RequestError("logits_processor: must return the logits, not None")
        changed = _returned("logits_processor", value, "an array of numbers", "logits", logits.shape)
        if np.isnan(changed).any() or changed.max() == np.inf:
            raise RequestError("logits_processor: the returned logits contain NaN or infinity")
        return changed

    @property
    def _ids(self) -> NDArray[np.int32]:
        return np.array(self._tokens, np.int32)


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

    def apply(self, site: str, rows: Logits, positions: NDArray[np.int32]) -> Logits:
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

    def _applied(self, site: str, rows: Logits, positions: NDArray[np.int32]) -> Logits:
        value = self._functions[site](rows.copy(), positions)
        if value is None:
            return rows
        changed = _returned(f"on_layer: {site}", value, "rows or None", "rows", rows.shape)
        if not np.isfinite(changed).all():
            raise RequestError(f"on_layer: {site}: the returned rows contain NaN or infinity")
        return changed


def _returned(option: str, value: object, expected: str, what: str, shape: tuple[int, ...]) -> Logits:
    """Return what a function of a request returned, as float32.

    Raises RequestError for what is no array of numbers, ``expected``, and for ``what`` of another shape.
    """
    try:
        changed = np.asarray(value, np.float32)
    except (TypeError, ValueError, RuntimeError):
        raise RequestError(f"{option}: must return {expected}, not {show_python(value)}") from None
    if changed.shape != shape:
        raise RequestError(f"{option}: must return {what} of the shape {shape}, not {changed.shape}")
    return changed


def _call(
    option: str, function: Callable[[NDArray[np.int32], Logits], object], ids: NDArray[np.int32], logits: Logits
) -> object:
    """Call a function of a request; what it raises becomes a RequestError that names the option."""
    try:
        result = function(ids, logits)
    except Exception as error:
        raise RequestError(f"{option}: raised {type(error).__name__}: {error}") from error
    return result
