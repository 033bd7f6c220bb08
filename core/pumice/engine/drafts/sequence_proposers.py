"""The proposers of sequences: created when a sequence is first drafted for, told its text, dropped after an error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from pumice.engine.cache.kv_cache import n_equal
from pumice.engine.drafts.choice import Acceptance
from pumice.engine.drafts.drafter import FORCED, Draft, Drafter, checked_tokens
from pumice.engine.requests.generation import Generation
from pumice.errors import PluginError
from pumice.guard import PASSED, UNEXPECTED, describe
from pumice.proposers import Proposer, ProposerContext, names_of

log = logging.getLogger("pumice")

PREDICTION = "prediction"  # the proposer of requests with a prediction
NEVER = 1 << 62  # the step in which a sequence without proposers is drafted for


@dataclass(eq=False)
class SequenceProposers:
    """The proposers of a sequence, and what their drafts are worth.

    Attributes:
        acceptance: what the drafts of each are worth, by names in the order of preference.
        by_name: those that look drafts up; layers and models that draft serve all sequences.
        n_passed: generated tokens that were passed to them.
        unverified: the latest draft, if no step verified it.
        n_before: generated tokens before it.
    """

    acceptance: dict[str, Acceptance] = field(default_factory=dict)
    by_name: dict[str, Proposer] = field(default_factory=dict)
    n_passed: int = 0
    unverified: Draft | None = None
    n_before: int = 0

    @property
    def wakes(self) -> int:
        """The number of the step in which the first of its proposers is asked next."""
        return min((own.wakes for own in self.acceptance.values()), default=NEVER)

    def chances(self, draft: Draft | None) -> list[float]:
        """Return the probability of each token of a draft to be accepted if those before it are."""
        if draft is None or draft.name == FORCED:
            return [1.0] * len(draft.tokens) if draft else []
        return self.acceptance[draft.name].rates.chances(len(draft.tokens))

    def keep_unverified(self, draft: Draft, generation: Generation) -> None:
        """Keep a draft that no step verifies, to compare it with the tokens that follow."""
        self.unverified, self.n_before = draft, len(generation.generated)

    def accept(self, tokens: Sequence[int]) -> None:
        """Pass tokens to the proposers."""
        for name, proposer in list(self.by_name.items()):
            with self.dropping(name, "accept"):
                proposer.accept(tokens)

    def judge(self, draft: Draft) -> None:
        """Count a draft that a step verified, and tell its proposer how many of its tokens were accepted."""
        if draft.name in self.acceptance:
            self.acceptance[draft.name].rates.count(len(draft.tokens), draft.n_accepted)
        if draft.name in self.by_name:
            with self.dropping(draft.name, "judge"):
                self.by_name[draft.name].judge(draft.tokens, draft.n_accepted)

    def close(self) -> None:
        """Close the proposers."""
        for name, proposer in list(self.by_name.items()):
            with self.dropping(name, "close"):
                proposer.close()

    @contextmanager
    def dropping(self, name: str, method: str) -> Iterator[None]:
        """Drop a proposer whose method raises an error: the sequence goes on without its drafts."""
        try:
            yield
        except PASSED:
            raise
        except UNEXPECTED as error:
            self.drop(name, method, error)

    def drop(self, name: str, method: str, error: BaseException) -> None:
        """Close and discard a proposer, and log its error."""
        log.warning("proposer %r: %s: %s; the request goes on without its drafts", name, method, describe(error))
        self.acceptance.pop(name, None)
        proposer = self.by_name.pop(name, None)
        if proposer and method != "close":
            with suppress(Exception):
                proposer.close()


class ProposerPool:
    """The proposers of all sequences.

    Args:
        factories: factories of proposers that look drafts up, by name.
        drafters: layers and models that draft, by name.
        auto: names of the proposers that the choice ``auto`` selects.
        default: choice of requests without their own.
    """

    def __init__(
        self,
        factories: Mapping[str, Callable[[], Proposer]],
        drafters: Mapping[str, Drafter],
        auto: Sequence[str],
        default: str,
    ) -> None:
        self._factories = factories
        self._drafters = drafters
        self._auto = auto
        self._default = default
        self._shared: dict[Hashable, Any] = {}
        self._erring: set[str] = set()  # proposers whose wrong tokens the log has named
        self._sequences: dict[Generation, SequenceProposers] = {}
        for name in {*self.chosen()} - {*drafters}:
            with suppress(PluginError):  # which each sequence meets again, and the log tells
                factories[name]  # imports it: no process may fork while a thread of the engine's does

    def chosen(self, choice: str = "") -> Sequence[str]:
        """Return the names of the proposers of a choice, or of requests without one."""
        choice = choice or self._default
        return self._auto if choice == "auto" else [] if choice == "off" else names_of(choice)

    def names(self, generation: Generation) -> Sequence[str]:
        """Return the names of a sequence's proposers."""
        names = self.chosen(generation.request.speculate or "")
        if generation.prediction and PREDICTION in self._factories:
            names = [PREDICTION, *(name for name in names if name != PREDICTION)]
        if generation.media:
            names = [name for name in names if name not in self._drafters or self._drafters[name].takes_media]
        return names

    def __contains__(self, generation: Generation) -> bool:
        return generation in self._sequences

    def __getitem__(self, generation: Generation) -> SequenceProposers:
        return self._sequences[generation]

    def get(self, generation: Generation) -> SequenceProposers | None:
        """Return the proposers of a sequence, if it was drafted for."""
        return self._sequences.get(generation)

    def drop(self, running: Generation, name: str, method: str, error: Exception) -> None:
        """Let a sequence go on without a layer or model that drafts, after an error of it."""
        self.start([running])
        self._drafters[name].drop(running)
        self._sequences[running].drop(name, method, error)

    def wakes(self, generation: Generation) -> int:
        """Return the number of the step in which a proposer of a sequence is asked next."""
        own = self._sequences.get(generation)
        return own.wakes if own else 0 if self.names(generation) else NEVER

    def start(self, generations: Sequence[Generation]) -> None:
        """Create the proposers of sequences that have none, and pass the prompts to them."""
        for generation in generations:
            if generation in self._sequences:
                continue
            context = ProposerContext(generation.chain.n_vocab, generation.salt, self._shared, generation.prediction)
            own = self._sequences[generation] = SequenceProposers()
            for name in self.names(generation):
                own.acceptance[name] = Acceptance(name in self._drafters)
                if name not in self._drafters:
                    with own.dropping(name, "__init__"):
                        own.by_name[name] = self._factories[name]()
                if name in own.by_name:
                    with own.dropping(name, "start"):
                        own.by_name[name].start(context)
            own.accept(generation.spoken)

    def updated(self, generation: Generation) -> SequenceProposers:
        """Return the proposers of a sequence, after passing its new tokens to them."""
        own = self._sequences[generation]
        if new := generation.generated[own.n_passed :]:
            own.n_passed += len(new)
            own.accept(new)
            self._compare(own, generation)
        return own

    def _compare(self, own: SequenceProposers, generation: Generation) -> None:
        """Count how many tokens of the latest draft would have been accepted, if it was not verified."""
        draft, own.unverified = own.unverified, None
        if draft is not None and draft.name in own.acceptance:
            following = generation.generated[own.n_before : own.n_before + len(draft.tokens)]
            own.acceptance[draft.name].rates.count(len(following), n_equal(following, draft.tokens))

    def ask(self, name: str, sequences: Sequence[Generation], most: Sequence[int]) -> list[Sequence[int]]:
        """Return the proposals of a proposer for sequences, after passing their new tokens to it."""
        owners = [self.updated(running) for running in sequences]
        if drafter := self._drafters.get(name):
            try:
                return drafter.propose(sequences, most)
            except Exception as error:
                for running in sequences:
                    self.drop(running, name, "propose", error)
                return [[] for _ in sequences]
        proposals: list[Sequence[int]] = []
        for running, own, n in zip(sequences, owners, most, strict=True):
            proposals.append([])
            if name in own.by_name:
                with own.dropping(name, "propose"):
                    proposals[-1] = checked_tokens(own.by_name[name].propose(n), n)
            self._check_tokens(name, proposals[-1], running.chain.n_vocab)
        return proposals

    def _check_tokens(self, name: str, tokens: Sequence[int], n_vocab: int) -> None:
        """Log a proposed token that the vocabulary does not have, once for each proposer; drafts end before it."""
        wrong = next((token for token in tokens if not 0 <= token < n_vocab), None)
        if wrong is not None and name not in self._erring:
            self._erring.add(name)
            log.warning(
                "proposer %r: propose: token %d is not in the vocabulary of %d tokens; drafts end before such tokens",
                name,
                wrong,
                n_vocab,
            )

    def close(self, generation: Generation) -> None:
        """Pass the last tokens of an ended sequence to its proposers, and close them."""
        if generation in self._sequences:
            self.updated(generation).close()
            del self._sequences[generation]
            for drafter in self._drafters.values():
                drafter.close(generation)
