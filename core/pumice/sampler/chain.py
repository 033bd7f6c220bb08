"""The sampler chain of one sequence."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.errors import BackendError, PluginError, RequestError
from pumice.sampler import parameters
from pumice.sampler.candidates import Candidates
from pumice.sampler.contract import Sampler, SamplerContext
from pumice.suggest import unknown_name


class Chain:
    """Samplers in the order they run; those that would do nothing are left out."""

    def __init__(self, samplers: Sequence[Sampler], context: SamplerContext) -> None:
        """``samplers``: the last of them, and only it, selects."""
        self.samplers = tuple(samplers)
        self._context = context
        self._remember = [s for s in self.samplers if type(s).accept is not Sampler.accept]
        self._logits = np.empty(context.n_vocab, np.float32)
        for sampler in self.samplers:
            sampler.start(context)

    @classmethod
    def build(
        cls,
        samplers: Mapping[str, type[Sampler]],
        order: Sequence[str],
        params: Mapping[str, Any],
        context: SamplerContext,
    ) -> Chain:
        """The chain of the samplers named in ``order``.

        Args:
            samplers: all known sampler classes, by name.
            order: names, first to last; at least one of them selects.
            params: values by parameter name; None stands for the default. ``seed`` replaces the context's.
            context: of the sequence.

        Raises:
            RequestError: an unknown sampler or parameter, a value of the wrong type or out of its range, or
                an order without a sampler that selects.
        """
        for name in order:
            if name not in samplers:
                raise RequestError(unknown_name("sampler", name, samplers))
        given = {name: value for name, value in params.items() if value is not None}
        if "seed" in given:
            context = dataclasses.replace(context, seed=parameters.plain(given["seed"]))
        classes = [samplers[name] for name in order]
        parameters.check_known(given.keys() - {"seed"}, classes, samplers)
        return cls(_without_idle([parameters.create(c, given) for c in classes]), context)

    @property
    def seed(self) -> int:
        """The seed in use: given again with the same logits, it gives the same tokens."""
        return self._context.seed

    def apply(self, logits: NDArray[np.float32]) -> Candidates:
        """Run the chain: the candidates left at its end, one of them selected. Valid until the next call.

        Args:
            logits: float [n_vocab]; not changed.

        Raises:
            BackendError: logits of the wrong shape, or without a finite maximum.
        """
        if logits.shape != self._logits.shape:
            raise BackendError(f"expected logits of shape {self._logits.shape}, not {logits.shape}")
        peak = float(logits.max())
        if not math.isfinite(peak):
            what = "contain NaN" if math.isnan(peak) else "are all -inf" if peak < 0 else "contain infinity"
            raise BackendError(f"the model's logits {what}; try another backend, or check the model file")
        np.copyto(self._logits, logits)
        candidates = Candidates(self._logits)
        for sampler in self.samplers:
            sampler.apply(candidates)
            if not len(candidates):
                raise PluginError(f"the sampler {type(sampler).__name__} left no candidates; it must leave one")
            if candidates.selected is not None:
                break
        return candidates

    def sample(self, logits: NDArray[np.float32]) -> int:
        """The next token, for logits float [n_vocab]. It is not accepted yet. Raises as ``apply``."""
        selected = self.apply(logits).selected
        if selected is None:
            raise PluginError(f"the sampler {type(self.samplers[-1]).__name__} selected no token")
        return selected

    def accept(self, token: int) -> None:
        """Tell the samplers the next token of the sequence, from the prompt or sampled."""
        for sampler in self._remember:
            sampler.accept(token)


def _without_idle(samplers: Sequence[Sampler]) -> list[Sampler]:
    """Up to the sampler that selects, the samplers that do something.

    That is the first active one that selects, or else the last: ``[top_k, dist]`` has no other choice.
    """
    selecting = [s for s in samplers if s.selects]
    if not selecting:
        raise RequestError("the list of samplers has none that selects a token; end it with dist or greedy")
    choice = next((s for s in selecting if not s.is_neutral), selecting[-1])
    place = next(i for i, s in enumerate(samplers) if s is choice)
    before = [s for s in samplers[:place] if not s.is_neutral and not s.selects]
    return [*choice.relevant(before), choice]
