"""The sampler chain of one sequence."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.errors import BackendError, PluginError, RequestError
from pumice.guard import guarded, raise_named
from pumice.pick import Pick, Restriction
from pumice.sampler import parameters
from pumice.sampler.candidates import Candidates, largest
from pumice.sampler.contract import MaskSampler, Plan, Sampler, SamplerContext, Selector
from pumice.sampler.mask import Mask, allows, at_most_one, count, to_tokens
from pumice.sampler.random import make_rng
from pumice.suggest import unknown_name

_LOOKED_AT = 64  # random numbers, of which most are asked for later
_SPARE = 4  # highest logits that are looked at first, for each that is needed, where a mask may exclude some


class Chain:
    """Samplers in the order they run; those that would do nothing are left out."""

    def __init__(self, samplers: Sequence[Sampler], context: SamplerContext) -> None:
        """``samplers``: the last of them, and only it, selects.

        ``n_best`` is then how many of the highest logits decide, None if it may be any; with ``lowers`` only after some
        were lowered or masked, so that a few more may be needed. ``pick``, where there is one, most likely chooses the
        same tokens with the numbers from ``peek``, and where it is exact the same but for roundings.
        """
        self.samplers = tuple(samplers)
        self._context = context
        self._remember = [s for s in self.samplers if type(s).accept is not Sampler.accept]
        self.masking = [s for s in self.samplers if isinstance(s, MaskSampler)]
        plans = [_plan(sampler) for sampler in self.samplers]
        self._biases = [plan.biases for plan in plans if plan.biases]
        self._mask: Mask | None = None
        self._few: Sequence[int] | None = None  # the token of a mask that leaves one, or none
        self._coming = np.empty(0, np.float32)  # random numbers that were looked at already
        self._n_skipped = 0  # of those, taken elsewhere
        self._mask_known = not self.masking
        self._peeking = make_rng(context.kind, 0)
        for sampler in self.samplers:
            guarded(sampler.start, f"{_describe(sampler)}: start")(context)
        self._n_lower = 0  # of the first samplers, those that only lower some logits
        self.n_best: int | None = None
        self.pick = self._follow(plans)
        self.lowers = self._n_lower > 0
        choice = self._picking(-1, plans[-1], Pick())
        self.certain = choice is not None and choice.temperature == 0
        """Whether the same logits always give the same token."""

    @classmethod
    def build(
        cls,
        samplers: Mapping[str, type[Sampler]],
        order: Sequence[str],
        params: Mapping[str, Any],
        context: SamplerContext,
        first: Sequence[Sampler] = (),
    ) -> Chain:
        """The chain of the samplers named in ``order``.

        Args:
            samplers: all known sampler classes, by name.
            order: names, first to last; at least one of them selects.
            params: values by parameter name; None stands for the default. ``seed`` and ``rng`` replace
                the context's.
            context: of the sequence.
            first: samplers that stand before all of them.

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
        if "rng" in given:
            context = dataclasses.replace(context, kind=given["rng"])
        classes = [samplers[name] for name in order]
        parameters.check_known(given.keys() - parameters.SHARED, classes, samplers, parameters.ARGUMENTS)
        return cls([*first, *_without_idle([parameters.create(c, given) for c in classes])], context)

    @property
    def seed(self) -> int:
        """The seed in use: given again with the same logits, it gives the same tokens."""
        return self._context.seed

    @property
    def n_vocab(self) -> int:
        return self._context.n_vocab

    def peek(self, n: int, skip: int = 0) -> NDArray[np.float32]:
        """float32 [n]: the random numbers that come next, or after so many; they are still to come.

        Zeros where none decides.
        """
        if self.certain:
            return np.zeros(n, np.float32)
        begin = self._n_skipped + skip
        if begin + n > len(self._coming):
            self._catch_up()
            self._peeking.bit_generator.state = self._context.rng.bit_generator.state  # takes longer than the numbers
            self._coming = self._peeking.random(skip + n + _LOOKED_AT).astype(np.float32)
            begin = skip
        return self._coming[begin : begin + n]

    def skip(self, n: int) -> None:
        """Leave out the random numbers of ``n`` tokens, which were picked with them elsewhere."""
        self._n_skipped += n

    def _catch_up(self) -> None:
        """Leave out of the generator itself what was skipped."""
        if self._n_skipped and not self.certain:
            self._context.rng.random(self._n_skipped)
        self._n_skipped, self._coming = 0, self._coming[:0]

    def apply(self, logits: NDArray[np.float32], ids: NDArray[np.int32] | None = None) -> Candidates | None:
        """Run the chain: the candidates left at its end, one of them selected.

        Args:
            logits: float [n_vocab]; not changed.
            ids: int32; with them ``logits`` are only those of these tokens, the ``n_best`` highest or more, in
                descending order, equal ones by token id; NaN comes first. The result is the same, or None: where
                tokens were lowered or masked, others may be needed.

        Raises:
            BackendError: logits of the wrong shape, or without a finite maximum.
        """
        self._catch_up()  # samplers may take some
        n_vocab = self._context.n_vocab
        if ids is None and logits.shape != (n_vocab,):
            raise BackendError(f"expected logits of shape {(n_vocab,)}, not {logits.shape}")
        if ids is None and self.n_best == 1 and not self.lowers and self.mask is None:  # one look at each logit
            ids = np.array([logits.argmax()], np.int32)
            logits = logits[ids]
        peak = float(logits.max() if ids is None else logits[0])
        if not math.isfinite(peak):
            what = "contain NaN" if math.isnan(peak) else "are all -inf" if peak < 0 else "contain infinity"
            raise BackendError(f"the model's logits {what}; try another backend, or check the model file")
        if ids is None and self._n_best_likely:
            best = largest(logits, self._n_best_likely)
            found = self._run(logits[best], best.astype(np.int32))
            if found is not None:
                return found
        return self._run(logits, ids)

    def _run(self, logits: NDArray[np.float32], ids: NDArray[np.int32] | None) -> Candidates | None:
        candidates = self._allowed(logits, ids)
        if ids is not None and not len(candidates) and self._n_allowed:
            return None
        for i, sampler in enumerate(self.samplers):
            if i == self._n_lower and ids is not None and not self._decided(candidates, logits[-1]):
                return None
            try:
                sampler.apply(candidates)
                problem = candidates.problem or self._wrong_choice(candidates.selected)
            except Exception as error:
                raise_named(error, f"{_describe(sampler)}: apply")
            if problem:
                raise PluginError(f"{_describe(sampler)}: apply: {problem}")
            if candidates.selected is not None:
                break
        return candidates

    def sample(self, logits: NDArray[np.float32], ids: NDArray[np.int32] | None = None) -> int | None:
        """The next token, for logits as ``apply`` takes them, which is not accepted yet. None and errors as there."""
        candidates = self.apply(logits, ids)
        if candidates is None:
            return None
        if candidates.selected is None:
            raise PluginError(f"{_describe(self.samplers[-1])}: apply: selected no token")
        return candidates.selected

    def _wrong_choice(self, selected: int | None) -> str | None:
        known = selected is None or selected in range(self.n_vocab)
        return None if known else f"selected {selected!r}, which is no token of {self.n_vocab}"

    @property
    def mask(self) -> Mask | None:
        """What all samplers allow as the next token; None: everything."""
        if not self._mask_known:
            masks = [mask for sampler in self.masking if (mask := sampler.mask()) is not None]
            self._mask = functools.reduce(np.bitwise_and, masks) if masks else None
            self._few = at_most_one(self._mask) if self._mask is not None else None
            self._mask_known = True
        return self._mask

    @property
    def few(self) -> Sequence[int] | None:
        """The next token, where the mask leaves one, or none where it leaves none; None: it leaves more."""
        return None if self.mask is None else self._few

    @property
    def forced(self) -> Sequence[int]:
        """The next tokens, as far as a sampler knows that there is no choice about them."""
        return self.masking[0].forced() if len(self.masking) == 1 else ()

    @property
    def restriction(self) -> Restriction:
        """What holds for the next token, where ``pick`` is restricted."""
        if not self._biases:
            return Restriction(self.mask)
        added: dict[int, float] = {}
        for biases in self._biases:
            for token, value in biases():
                added[token] = added.get(token, 0.0) + value
        return Restriction(self.mask, tuple(added.items()))

    def accept(self, token: int) -> None:
        """Tell the samplers the next token of the sequence, from the prompt or sampled."""
        self._mask_known = not self.masking
        for sampler in self._remember:
            try:
                sampler.accept(token)
            except Exception as error:
                raise_named(error, f"{_describe(sampler)}: accept")

    def _allowed(self, logits: NDArray[np.float32], ids: NDArray[np.int32] | None) -> Candidates:
        """The candidates that the mask leaves, in arrays that may be written."""
        mask, n_vocab = self.mask, self._context.n_vocab
        if mask is None:
            # A first sampler that keeps few of all logits writes into none; they need no copy.
            writes = ids is not None or self.lowers or self.n_best is None
            candidates = Candidates(logits.copy() if writes else logits, ids)
        else:
            here = to_tokens(mask, n_vocab) if ids is None else np.flatnonzero(allows(mask, ids))
            candidates = Candidates(logits[here], here.astype(np.int32) if ids is None else ids[here])
        candidates.sorted = ids is not None
        return candidates

    @property
    def _n_best_likely(self) -> int:
        """How many of the highest logits most likely hold enough that are allowed, if a mask leaves many; else 0."""
        if self.mask is None or self.n_best is None or _SPARE * self._n_allowed < self.n_vocab:
            return 0
        return _SPARE * self.n_best

    @property
    def _n_allowed(self) -> int:
        """Tokens that the mask leaves."""
        return self._context.n_vocab if self.mask is None else count(self.mask, self._context.n_vocab)

    def _decided(self, candidates: Candidates, highest_left_out: np.float32) -> bool:
        """Whether enough of the candidates, after lowering, are above all that are not among them; or those are all."""
        assert self.n_best is not None
        if (candidates.sorted and len(candidates) >= self.n_best) or len(candidates) == self._n_allowed:
            return True
        if candidates.sorted:
            return False
        # Of equal logits the lower token id comes first.
        candidates.keep(np.argsort(candidates.ids))
        return bool(np.count_nonzero(candidates.logits > highest_left_out) >= self.n_best)

    def _follow(self, plans: Sequence[Plan]) -> Pick | None:
        """Compose what the samplers do, as far as plans say it; None if it takes all logits."""
        pick = Pick()
        for i, plan in enumerate(plans):
            following = self._picking(i, plan, pick)
            # Where all logits are kept they stay in the order of their tokens.
            if following is None or following.top_k >= self.n_vocab:
                return None
            if not following.top_k and (not following.only_adjusts or isinstance(self.samplers[i], Selector)):
                return None
            pick = following
            if i == self._n_lower and pick.top_k:
                self.n_best = pick.top_k
            elif i == self._n_lower and not pick.raises:
                self._n_lower += 1
        return dataclasses.replace(pick, restricted=True) if self.masking else pick

    def _picking(self, i: int, plan: Plan, pick: Pick) -> Pick | None:
        try:
            return plan.pick(pick)
        except Exception as error:
            raise_named(error, f"{_describe(self.samplers[i])}: plan")


def make_masks(chains: Sequence[Chain]) -> None:
    """Have what several sequences need to know of their next tokens made together, where their samplers can."""
    kinds: dict[type[MaskSampler], list[MaskSampler]] = {}
    for sampler in itertools.chain.from_iterable(chain.masking for chain in chains):
        kinds.setdefault(type(sampler), []).append(sampler)
    for kind, samplers in kinds.items():
        if len(samplers) > 1:
            guarded(kind.make_masks, f"{_describe(samplers[0])}: make_masks")(samplers)


def _describe(sampler: Sampler) -> str:
    """For messages: the class, with its module, which tells whose it is."""
    return f"sampler {type(sampler).__module__}.{type(sampler).__qualname__}"


def _plan(sampler: Sampler) -> Plan:
    """The plan of a sampler, whose errors name it."""
    try:
        return Plan.of(sampler)
    except Exception as error:
        raise_named(error, f"{_describe(sampler)}: plan")


def _without_idle(samplers: Sequence[Sampler]) -> list[Sampler]:
    """Up to the sampler that selects, the samplers that do something.

    That is the first active one that selects, or else the last: ``[top_k, dist]`` has no other choice.
    """
    selecting = [s for s in samplers if isinstance(s, Selector)]
    if not selecting:
        raise RequestError("the list of samplers has none that selects a token; end it with dist or greedy")
    choice = next((s for s in selecting if not _plan(s).neutral), selecting[-1])
    place = next(i for i, s in enumerate(samplers) if s is choice)
    before = [s for s in samplers[:place] if not isinstance(s, Selector) and not _plan(s).neutral]
    return [*choice.relevant(before), choice]
