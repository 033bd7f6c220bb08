"""The sampler chain of a sequence."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.backend.pick import Pick, Restriction
from pumice.errors import BackendError, PluginError, RequestError
from pumice.guard import PASSED, UNEXPECTED, guarded, raise_named
from pumice.sampler import parameters
from pumice.sampler.candidates import Candidates, largest
from pumice.sampler.contract import MaskSampler, Plan, PlannedSampler, Sampler, SamplerContext, Selector
from pumice.sampler.mask import ListedMask, Mask, allows, at_most_one, count, n_words
from pumice.sampler.random import NumbersAhead
from pumice.wording import unknown_name

Tokens = Sequence[int]
_TRUSTED = PlannedSampler, MaskSampler  # samplers whose logits and ids are not read again to check them
_SPARE = 4  # highest logits considered first for each one needed, since a mask may exclude some


Biases = Sequence[tuple[int, float]]
"""Tokens, each at most once, and values to add to their logits."""


class Possible(NamedTuple):
    """The tokens that masks allow at a position: their mask, and ``few`` of the chain; and the biases there."""

    mask: Mask | None
    few: Tokens | None
    biases: Biases = ()

    @staticmethod
    def of(masks: Sequence[Mask]) -> Possible:
        """Return the tokens that all masks allow."""
        mask = functools.reduce(np.bitwise_and, masks) if masks else None
        return Possible(mask, None if mask is None else at_most_one(mask))

    def allows(self, token: int) -> bool:
        return self.mask is None or bool(self.mask[token >> 5] >> (token & 31) & 1)


class SummedBiases:
    """The biases that the samplers of a chain add, summed by token."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        """Take the biases of the plans that have some."""
        self._of_next = [plan.biases for plan in plans if plan.biases]
        self._behind = [plan.biases_behind for plan in plans if plan.biases_behind]
        self._next: Biases | None = None

    def __bool__(self) -> bool:
        return bool(self._of_next)

    @property
    def look_ahead(self) -> bool:
        """True if the biases behind tokens can be known before these are accepted."""
        return len(self._of_next) == len(self._behind)

    @property
    def next(self) -> Biases:
        """Biases of the next token."""
        if self._next is None:
            self._next = self._sum([biases() for biases in self._of_next])
        return self._next

    def behind(self, tokens: Tokens) -> list[Biases]:
        """Return the biases behind each of these tokens, if they came next."""
        return [self._sum(parts) for parts in zip(*(biases(tokens) for biases in self._behind), strict=True)]

    def forget(self) -> None:
        """Discard the biases of the next token, once it has come."""
        self._next = None

    @staticmethod
    def _sum(parts: Sequence[Biases]) -> Biases:
        added: dict[int, float] = {}
        for token, value in itertools.chain.from_iterable(parts):
            added[token] = added.get(token, 0.0) + value
        return tuple(added.items())


class Chain:
    """Samplers in their order, without those that do nothing with their parameters.

    Attributes:
        samplers: Samplers; only the last one selects.
        masking: Samplers that only forbid tokens.
        n_best: Number of highest logits that decide; None if any logit may.
        lowers: True if logits may be lowered or masked before these decide, so that further logits may be needed.
        pick: Operation of a device that most likely chooses the same tokens with the numbers from ``peek``; an exact
            one does but for rounding. None if there is none.
        certain: True if the same logits always give the same token.
        was_expected: True if ``look_ahead`` has found the masks behind the latest token.
    """

    def __init__(self, samplers: Sequence[Sampler], context: SamplerContext) -> None:
        """Start the samplers; only the last one selects."""
        self.samplers = tuple(samplers)
        self._context = context
        self._remember = [s for s in self.samplers if type(s).accept is not Sampler.accept]
        self.masking = [s for s in self.samplers if isinstance(s, MaskSampler)]
        plans = [_plan(sampler) for sampler in self.samplers]
        self._biases = SummedBiases(plans)
        self._mask: Mask | None = None
        self._few: Sequence[int] | None = None  # the token of a mask that allows one, or none
        self._mask_known = not self.masking
        self._listed = ListedMask(context.n_vocab)
        self.was_expected = False
        self._expected: deque[tuple[int, Possible]] = deque()  # tokens looked ahead at, and what may follow each
        self._numbers = NumbersAhead(context.kind, context.rng)
        for sampler in self.samplers:
            guarded(sampler.start, f"{_describe(sampler)}: start")(context)
        self._n_lower = 0  # number of first samplers that only lower some logits
        self.n_best: int | None = None
        self.pick = self._follow(plans)
        self.lowers = self._n_lower > 0
        choice = self._picking(-1, plans[-1], Pick())
        self.certain = choice is not None and choice.temperature == 0

    @classmethod
    def build(
        cls,
        samplers: Mapping[str, type[Sampler]],
        order: Sequence[str],
        params: Mapping[str, Any],
        context: SamplerContext,
        first: Sequence[Sampler] = (),
    ) -> Chain:
        """Return the chain of the samplers named in ``order``.

        Args:
            samplers: Classes of all registered samplers by name.
            order: Names, first to last; at least one of them selects.
            params: Values by parameter name; None stands for the default. ``seed`` and ``rng`` replace the context's.
            context: Context of the sequence.
            first: Samplers that run before the named ones.

        Raises:
            RequestError: A sampler or a parameter is unknown, a value is of a wrong type or out of its range, or no
                sampler selects.
        """
        for name in order:
            if name not in samplers:
                raise RequestError(unknown_name("sampler", name, samplers))
        values = {name: value for name, value in params.items() if value is not None}
        if "seed" in values:
            context = dataclasses.replace(context, seed=parameters.plain(values["seed"]))
        if "rng" in values:
            context = dataclasses.replace(context, kind=values["rng"])
        classes = [samplers[name] for name in order]
        parameters.check_known(values.keys() - parameters.SHARED, classes, samplers, parameters.ARGUMENTS)
        return cls([*first, *_without_idle([parameters.create(c, values) for c in classes])], context)

    @property
    def seed(self) -> int:
        """Seed in use, with which the same logits give the same tokens."""
        return self._context.seed

    @property
    def n_vocab(self) -> int:
        """Number of logits of a token."""
        return self._context.n_vocab

    def peek(self, n: int, skip: int = 0) -> NDArray[np.float32]:
        """Return the next random numbers, float32 ``[n]``, without using them; zeros if the chain needs none.

        Args:
            n: Number of random numbers.
            skip: Number of random numbers to leave out before them.
        """
        return np.zeros(n, np.float32) if self.certain else self._numbers.peek(n, skip)

    def skip(self, n: int) -> None:
        """Leave out the random numbers of ``n`` tokens that a device picked with them."""
        if not self.certain:
            self._numbers.skip(n)

    def apply(self, logits: NDArray[np.float32], ids: NDArray[np.int32] | None = None) -> Candidates | None:
        """Run the chain, and return the candidates left at its end, one of them selected.

        The samplers do not run for a token that masks force: it takes no random number.

        Args:
            logits: float ``[n_vocab]``; not changed.
            ids: int32 ``[n]``, the tokens of ``logits``: the ``n_best`` highest logits or more, in descending order,
                equal ones by token id; NaN comes first. None if ``logits`` are those of the whole vocabulary.

        Returns:
            The candidates; None if the logits of ``ids`` are not enough, since tokens were lowered or masked.

        Raises:
            BackendError: The logits have a wrong shape, or no finite maximum.
        """
        self._numbers.catch_up()  # samplers may use random numbers
        n_vocab = self._context.n_vocab
        if ids is None and logits.shape != (n_vocab,):
            raise BackendError(f"expected logits of shape {(n_vocab,)}, not {logits.shape}")
        if ids is None and self.n_best == 1 and not self.lowers and self.mask is None:  # reads each logit once
            ids = np.array([logits.argmax()], np.int32)
            logits = logits[ids]
        peak = float(logits.max() if ids is None else logits[0])
        if not math.isfinite(peak):
            what = "contain NaN" if math.isnan(peak) else "are all -inf" if peak < 0 else "contain infinity"
            raise BackendError(
                f"the model's logits {what}; try another backend, check the file with `pumice check`, or find "
                "the operation of a backend with pumice.testing.check_backend"
            )
        if self.few:
            return _only(self.few[0])
        if ids is None and self._n_best_likely:
            best = largest(logits, self._n_best_likely)
            candidates = self._run(logits[best], best.astype(np.int32))
            if candidates is not None:
                return candidates
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
                problem = candidates.problem or _wrong_choice(candidates.selected, self.n_vocab)
                if not problem and candidates.selected is None and not isinstance(sampler, _TRUSTED):
                    problem = _wrong_value(candidates, self.n_vocab)
            except UNEXPECTED as error:
                if not isinstance(error, (MemoryError, *PASSED)):
                    self._refuse_logits(logits, ids, i)
                raise_named(error, f"{_describe(sampler)}: apply")
            if problem:
                self._refuse_logits(logits, ids, i)
                raise PluginError(f"{_describe(sampler)}: apply: {problem}")
            if candidates.selected is not None:
                break
        return candidates

    def _refuse_logits(self, logits: NDArray[np.float32], ids: NDArray[np.int32] | None, n: int) -> None:
        """Run the first ``n`` samplers again, and name the one whose logits fail a later one.

        Raises PluginError for NaN, RequestError if all logits are -inf, which parameters may cause, too.
        """
        candidates = self._allowed(logits, ids)
        for sampler in self.samplers[:n]:
            where = f"{_describe(sampler)}: apply"
            guarded(sampler.apply, where)(candidates)
            if np.isnan(candidates.logits).any():
                raise PluginError(f"{where}: left NaN in the logits")
            try:
                candidates.peak()
            except RequestError as error:
                raise RequestError(f"{where}: {error}") from None

    def sample(self, logits: NDArray[np.float32], ids: NDArray[np.int32] | None = None) -> int | None:
        """Return the next token without accepting it. Arguments, None and errors are those of ``apply``."""
        candidates = self.apply(logits, ids)
        if candidates is None:
            return None
        if candidates.selected is None:
            raise PluginError(f"{_describe(self.samplers[-1])}: apply: selected no token")
        return candidates.selected

    @property
    def mask(self) -> Mask | None:
        """Mask of the tokens that all samplers allow next; None allows all."""
        if not self._mask_known:
            masks = [mask for sampler in self.masking if (mask := _mask_of(sampler, self.n_vocab)) is not None]
            self._mask, self._few, _ = Possible.of(masks)
            self._mask_known = True
        return self._mask

    @property
    def few(self) -> Sequence[int] | None:
        """The only token that the mask allows, or an empty sequence; None if it allows several."""
        return None if self.mask is None else self._few

    @property
    def forced(self) -> Sequence[int]:
        """Next tokens for which a sampler leaves no choice."""
        if len(self.masking) != 1:
            return ()
        try:
            tokens = self.masking[0].forced()
            wrong = next((token for token in tokens if not 0 <= token < self.n_vocab), None)
        except UNEXPECTED as error:
            raise_named(error, f"{_describe(self.masking[0])}: forced")
        if wrong is not None:
            raise PluginError(f"{_describe(self.masking[0])}: forced: {wrong} is no token of {self.n_vocab}")
        return tokens

    def n_allowed(self, tokens: Sequence[int]) -> int:
        """Return how many of these tokens may come next, one after the other."""
        n_allowed = len(tokens)
        for sampler in self.masking:
            try:
                n_allowed = min(n_allowed, sampler.n_allowed(tokens))
            except UNEXPECTED as error:
                raise_named(error, f"{_describe(sampler)}: n_allowed")
        return n_allowed

    @property
    def looks_ahead(self) -> bool:
        """True if the restrictions behind drafted tokens can be known before these are accepted."""
        forks = all(type(sampler).fork is not MaskSampler.fork for sampler in self.masking)
        return forks and self._biases.look_ahead

    def look_ahead(
        self, tokens: Tokens, n: int, ends: Collection[int], most_added: float = math.inf
    ) -> tuple[list[int], list[Possible]]:
        """Return drafted tokens, and what may come before the first and behind each of them.

        Drafted are ``tokens`` up to one that is not allowed, and behind all of them, up to ``n`` together, those for
        which masks leave no choice, except ``ends``. They end where there are more than ``most_added`` biases. The
        chain keeps the masks of the tokens that it accepts next.
        """
        forks = [fork for sampler in self.masking if (fork := sampler.fork()) is not None]
        drafted: list[int] = []
        possible = [Possible(self.mask, self.few)]
        while len(drafted) < n:
            coming = tokens[len(drafted) : len(drafted) + 1] or possible[-1].few
            if not coming or coming[0] in ends or not possible[-1].allows(coming[0]):
                break
            try:
                for fork in forks:
                    fork.accept(coming[0])
                masks = [mask.copy() for fork in forks if (mask := _mask_of(fork, self.n_vocab)) is not None]
            except RequestError:  # the samplers raise it again if the sequence gets there
                break
            except UNEXPECTED as error:
                raise_named(error, f"{_describe(self.masking[0])}: fork")
            drafted.append(coming[0])
            possible.append(Possible.of(masks))
        if self._biases:
            added = [self._biases.next, *self._biases.behind(drafted)]
            n_known = next((i for i, biases in enumerate(added) if len(biases) > most_added), len(added))
            possible = [item._replace(biases=biases) for item, biases in zip(possible, added[:n_known], strict=False)]
            drafted = drafted[: max(0, n_known - 1)]
        self._expected = deque(zip(drafted, possible[1:], strict=True))
        return drafted, possible

    @property
    def restriction(self) -> Restriction:
        """Mask and biases of the next token, for a restricted ``pick``."""
        return Restriction(self.mask, self._biases.next)

    def accept(self, token: int) -> None:
        """Tell the samplers the next token of the sequence, from the prompt or sampled."""
        self._mask_known = not self.masking
        self._biases.forget()
        for sampler in self._remember:
            try:
                sampler.accept(token)
            except UNEXPECTED as error:
                raise_named(error, f"{_describe(sampler)}: accept")
        self.was_expected = False
        if self._expected:
            expected, possible = self._expected.popleft()
            if token == expected:
                self._mask, self._few, self._mask_known, self.was_expected = possible.mask, possible.few, True, True
            else:
                self._expected.clear()

    def changed(self) -> None:
        """Discard the masks of ``look_ahead``, after a change of a sampler."""
        self._expected.clear()

    def _allowed(self, logits: NDArray[np.float32], ids: NDArray[np.int32] | None) -> Candidates:
        """Return the candidates that the mask allows, in arrays that may be written."""
        mask = self.mask
        if mask is None:
            # A first sampler that keeps few of all logits writes into none; they need no copy.
            writes = ids is not None or self.lowers or self.n_best is None
            candidates = Candidates(logits.copy() if writes else logits, ids)
        else:
            allowed, tokens = self._listed.tokens(mask) if ids is None else (which := allows(mask, ids), ids[which])
            candidates = Candidates(logits[allowed], tokens)
        candidates.sorted = ids is not None
        return candidates

    @property
    def _n_best_likely(self) -> int:
        """Number of highest logits that most likely hold enough allowed ones; 0 without a mask or with a narrow one."""
        if self.mask is None or self.n_best is None or _SPARE * self._n_allowed < self.n_vocab:
            return 0
        return _SPARE * self.n_best

    @property
    def _n_allowed(self) -> int:
        """Number of tokens that the mask allows."""
        return self._context.n_vocab if self.mask is None else count(self.mask, self._context.n_vocab)

    def _decided(self, candidates: Candidates, highest_left_out: np.float32) -> bool:
        """Return True if enough candidates, after lowering, are above all other tokens, or if there are no others."""
        assert self.n_best is not None
        if (candidates.sorted and len(candidates) >= self.n_best) or len(candidates) == self._n_allowed:
            return True
        if candidates.sorted:
            return False
        # Of equal logits the lower token id comes first.
        candidates.keep(np.argsort(candidates.ids))
        return bool(np.count_nonzero(candidates.logits > highest_left_out) >= self.n_best)

    def _follow(self, plans: Sequence[Plan]) -> Pick | None:
        """Return the pick that does what the plans of the samplers describe; None if all logits are needed."""
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
        except UNEXPECTED as error:
            raise_named(error, f"{_describe(self.samplers[i])}: plan")


def _only(token: int) -> Candidates:
    """Return one token, selected."""
    candidates = Candidates(np.zeros(1, np.float32), np.array([token], np.int32))
    candidates.select(0)
    return candidates


def make_masks(chains: Sequence[Chain]) -> None:
    """Compute the masks of several sequences together, for samplers that can."""
    kinds: dict[type[MaskSampler], list[MaskSampler]] = {}
    for sampler in itertools.chain.from_iterable(chain.masking for chain in chains):
        kinds.setdefault(type(sampler), []).append(sampler)
    for kind, samplers in kinds.items():
        if len(samplers) > 1:
            guarded(kind.make_masks, f"{_describe(samplers[0])}: make_masks")(samplers)


def _mask_of(sampler: MaskSampler, n_vocab: int) -> Mask | None:
    """Return a sampler's mask. Raises PluginError, which names the sampler, for errors and what is no mask."""
    try:
        mask: object = sampler.mask()
    except UNEXPECTED as error:
        raise_named(error, f"{_describe(sampler)}: mask")
    if mask is None or (isinstance(mask, np.ndarray) and mask.dtype == np.uint32 and mask.shape == (n_words(n_vocab),)):
        return mask
    got = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, np.ndarray) else type(mask).__name__
    raise PluginError(f"{_describe(sampler)}: mask: expected uint32 [{n_words(n_vocab)}] or None, not {got}")


def _wrong_choice(selected: int | None, n_vocab: int) -> str | None:
    """Describe a selection that is no token of ``n_vocab``; None if it is one, or there is none."""
    is_token = selected is None or selected in range(n_vocab)
    return None if is_token else f"selected {selected!r}, which is no token of {n_vocab}"


def _wrong_value(candidates: Candidates, n_vocab: int) -> str | None:
    """Describe a NaN among the logits, or an id that is no token of ``n_vocab``; None if there is none."""
    if np.isnan(candidates.logits.max()):
        return "left NaN in the logits"
    wrong = candidates.ids[(candidates.ids < 0) | (candidates.ids >= n_vocab)]
    return f"left the id {wrong[0]}, which is no token of {n_vocab}" if len(wrong) else None


def _describe(sampler: Sampler) -> str:
    return parameters.describe(type(sampler))


def _plan(sampler: Sampler) -> Plan:
    """Return the plan of a sampler; errors name the sampler."""
    try:
        plan: object = Plan.of(sampler)
    except UNEXPECTED as error:
        raise_named(error, f"{_describe(sampler)}: plan")
    if not isinstance(plan, Plan):
        raise PluginError(f"{_describe(sampler)}: plan: expected a Plan, not {plan!r}")
    return plan


def _without_idle(samplers: Sequence[Sampler]) -> list[Sampler]:
    """Return the samplers that do something, up to the one that selects.

    That is the first active one that selects, or else the last one: ``[top_k, dist]`` has no other choice.
    """
    selecting = [s for s in samplers if isinstance(s, Selector)]
    if not selecting:
        raise RequestError("the list of samplers has none that selects a token; end it with dist or greedy")
    choice = next((s for s in selecting if not _plan(s).neutral), selecting[-1])
    place = next(i for i, s in enumerate(samplers) if s is choice)
    before = [s for s in samplers[:place] if not isinstance(s, Selector) and not _plan(s).neutral]
    return [*choice.relevant(before), choice]
