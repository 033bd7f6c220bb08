"""The proposers of sequences: created when a sequence is first drafted for, told its text, dropped after an error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from pumice.engine.drafts.choice import Acceptance
from pumice.engine.drafts.drafter import Drafter
from pumice.engine.drafts.drafts import FORCED, Draft, checked_tokens
from pumice.engine.drafts.model import DraftModel, ModelProposer
from pumice.engine.drafts.next_tokens import NextTokens, NextTokensProposer
from pumice.engine.placement.runner import Runner
from pumice.engine.requests.generation import Generation, Running
from pumice.errors import PluginError
from pumice.guard import PASSED, UNEXPECTED, describe
from pumice.proposers import COMPUTED, Proposer, ProposerContext, names_of

log = logging.getLogger("pumice")

DRAFT_MODEL = "draft"  # the proposer of a draft model
PREDICTION = "prediction"  # the proposer of requests with a prediction
NEVER = 1 << 62  # the step in which a sequence without proposers is drafted for


@dataclass(eq=False)
class SequenceProposers:
    """The proposers of a sequence by name, and what their drafts are worth.

    Attributes:
        n_passed: generated tokens that were passed to them.
        acceptance: what the drafts of each are worth.
        unverified: the latest draft, if no step verified it.
        n_before: generated tokens before it.
    """

    by_name: dict[str, Proposer]
    n_passed: int = 0
    acceptance: dict[str, Acceptance] = field(default_factory=dict)
    unverified: Draft | None = None
    n_before: int = 0

    @property
    def wakes(self) -> int:
        """The number of the step in which the first of its proposers is asked next."""
        return min((self.acceptance[name].wakes for name in self.by_name), default=NEVER)

    def chances(self, draft: Draft) -> list[float]:
        """Return the probability of each token of a draft to be accepted if those before it are."""
        n = len(draft.tokens)
        return [1.0] * n if draft.name == FORCED else self.acceptance[draft.name].rates.chances(n)

    def count(self, draft: Draft, n: int, n_accepted: int) -> None:
        """Count a draft, of whose first ``n`` tokens ``n_accepted`` were right."""
        if draft.name != FORCED and n:
            self.acceptance[draft.name].rates.count(n, n_accepted)

    def keep_unverified(self, draft: Draft, generation: Generation) -> None:
        """Keep a draft that no step verifies, to compare it with the tokens that follow."""
        self.unverified, self.n_before = draft, len(generation.generated)

    def start(self, context: ProposerContext, prompt: Sequence[int]) -> None:
        """Pass the context and the prompt to the proposers."""
        for name, proposer in list(self.by_name.items()):
            with self.dropping(name, "start"):
                proposer.start(context)
        self.accept(prompt)

    def accept(self, tokens: Sequence[int]) -> None:
        """Pass tokens to the proposers."""
        for name, proposer in list(self.by_name.items()):
            with self.dropping(name, "accept"):
                proposer.accept(tokens)

    def judge(self, draft: Draft) -> None:
        """Tell the proposer of a draft how many of its tokens were accepted."""
        if draft.name in self.by_name:
            with self.dropping(draft.name, "judge"):
                self.by_name[draft.name].judge(draft.tokens, draft.n_accepted)

    @property
    def model(self) -> ModelProposer | None:
        """The proposer of the draft model, if it has one."""
        proposer = self.by_name.get(DRAFT_MODEL)
        return proposer if isinstance(proposer, ModelProposer) else None

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
        proposer = self.by_name.pop(name, None)
        if proposer and method != "close":
            with suppress(Exception):
                proposer.close()


class ProposerPool:
    """The proposers of all sequences.

    Args:
        factories: factories of proposers by name.
        auto: names of the proposers that the choice ``auto`` selects.
        default: choice of requests without their own.
        next_tokens: the drafting layer of the model or of its draft model, if there is one.
    """

    def __init__(
        self,
        factories: Mapping[str, Callable[[], Proposer]],
        auto: Sequence[str],
        default: str,
        next_tokens: NextTokens | None,
    ) -> None:
        self.factories = factories
        self._auto = auto
        self._default = default
        self._next_tokens = next_tokens
        self._shared: dict[Hashable, Any] = {}
        self._erring: set[str] = set()  # proposers whose wrong tokens the log has named
        self._sequences: dict[Generation, SequenceProposers] = {}

    def chosen(self, choice: str = "") -> Sequence[str]:
        """Return the names of the proposers of a choice, or of requests without one."""
        choice = choice or self._default
        return self._auto if choice == "auto" else [] if choice == "off" else names_of(choice)

    def names(self, generation: Generation) -> Sequence[str]:
        """Return the names of a sequence's proposers."""
        names = self.chosen(generation.request.speculate or "")
        if generation.prediction and PREDICTION in self.factories:
            names = [PREDICTION, *(name for name in names if name != PREDICTION)]
        if generation.media and self._next_tokens:  # a layer reads tokens, and knows no other rows
            names = [name for name in names if name != self._next_tokens.name]
        return names

    def computing(self, generation: Generation) -> list[str]:
        """Return the names of a sequence's proposers that compute their drafts."""
        return [name for name in self.names(generation) if name in COMPUTED]

    def __contains__(self, generation: Generation) -> bool:
        return generation in self._sequences

    def __getitem__(self, generation: Generation) -> SequenceProposers:
        return self._sequences[generation]

    def get(self, generation: Generation) -> SequenceProposers | None:
        """Return the proposers of a sequence, if it was drafted for."""
        return self._sequences.get(generation)

    def drop(self, generation: Generation, name: str, method: str, error: Exception) -> None:
        """Let a sequence go on without a proposer after an error."""
        self._sequences.get(generation, SequenceProposers({})).drop(name, method, error)

    def wakes(self, generation: Generation) -> int:
        """Return the number of the step in which a proposer of a sequence is asked next."""
        own = self._sequences.get(generation)
        return own.wakes if own else 0 if self.names(generation) else NEVER

    def start(self, generations: Sequence[Generation]) -> None:
        """Create the proposers of sequences, and pass the prompts to them."""
        for generation in generations:
            context = ProposerContext(generation.chain.n_vocab, generation.salt, self._shared, generation.prediction)
            proposers = self._sequences[generation] = SequenceProposers({})
            for name in self.names(generation):
                proposers.acceptance[name] = Acceptance(name in COMPUTED)
                with proposers.dropping(name, "__init__"):
                    proposers.by_name[name] = self.factories[name]()
            proposers.start(context, generation.spoken)

    def read_texts(self, generations: Sequence[Generation]) -> None:
        """Let a draft model read a part of the new texts of sequences.

        It reads no more, so that a long prompt does not keep the engine from its steps.
        """
        reading = [own for own in map(self._sequences.__getitem__, generations) if own.model]
        try:
            ModelProposer.read_all([own.model for own in reading if own.model])
        except Exception as error:
            for own in reading:
                own.drop(DRAFT_MODEL, "read_all", error)

    def updated(self, generation: Generation) -> SequenceProposers:
        """Return the proposers of a sequence, after passing its new tokens to them."""
        proposers = self._sequences[generation]
        if new := generation.generated[proposers.n_passed :]:
            proposers.n_passed += len(new)
            proposers.accept(new)
            self._compare(proposers, generation)
        return proposers

    def _compare(self, proposers: SequenceProposers, generation: Generation) -> None:
        """Count how many tokens of the latest draft would have been accepted, if it was not verified."""
        draft, proposers.unverified = proposers.unverified, None
        if draft is not None:
            following = generation.generated[proposers.n_before : proposers.n_before + len(draft.tokens)]
            equal = takewhile(lambda pair: pair[0] == pair[1], zip(following, draft.tokens, strict=False))
            proposers.count(draft, len(following), sum(1 for _ in equal))

    def ask(self, name: str, sequences: Sequence[Running], most: Sequence[int]) -> list[Sequence[int]]:
        """Return the proposals of a proposer for sequences, after passing their new tokens to it."""
        owners = [self.updated(running.generation) for running in sequences]
        for running, own in zip(sequences, owners, strict=True):
            if isinstance(proposer := own.by_name.get(name), NextTokensProposer):
                proposer.running = running
        proposals = _propose_all(name, owners, most)
        for running, proposal in zip(sequences, proposals, strict=True):
            self._check_tokens(name, proposal, running.generation.chain.n_vocab)
        return proposals

    def _check_tokens(self, name: str, tokens: Sequence[int], n_vocab: int) -> None:
        """Log a proposed token that the vocabulary does not have, once for each proposer; drafts end before it."""
        if name in self._erring:
            return
        wrong = next((token for token in tokens if not 0 <= token < n_vocab), None)
        if wrong is not None:
            self._erring.add(name)
            log.warning(
                "proposer %r: propose: token %d is not in the vocabulary of %d tokens; drafts end before such tokens",
                name,
                wrong,
                n_vocab,
            )

    def close(self, generation: Generation) -> None:
        """Pass the last tokens of an ended sequence to its proposers, and close them."""
        self.updated(generation).close()
        del self._sequences[generation]


class ModelRounds(Drafter):
    """Rounds of a draft model, by the sequences of its target."""

    name = DRAFT_MODEL

    def __init__(self, pool: ProposerPool, model: DraftModel) -> None:
        self._pool = pool
        self._model = model

    def rehearse(self, n: int) -> None:
        self._model.rehearse(n)

    def submits(self, target: Runner) -> bool:
        """Return True if steps of the draft model pass their tokens to steps of the target on the device."""
        return self._model.submits(target)

    def holds(self, sequences: Sequence[Running], n: int) -> bool:
        proposers = self._proposers(sequences)
        return len(proposers) == len(sequences) and self._model.holds(proposers, n)

    def submit(self, sequences: Sequence[Running], n: int) -> None:
        self._model.submit(self._proposers(sequences), [running.slot for running in sequences], n)

    def took(self, running: Running, tokens: Sequence[int]) -> None:
        own = self._pool.get(running.generation)
        if own and own.model and own.model.place is not None:
            own.model.guessed = list(tokens)

    def _proposers(self, sequences: Sequence[Running]) -> list[ModelProposer]:
        """Return the proposers of sequences, with all tokens; those that had an error are missing."""
        found = [self._pool.updated(running.generation).model for running in sequences]
        return [proposer for proposer in found if proposer]


def _propose_all(name: str, owners: Collection[SequenceProposers], most: Sequence[int]) -> list[Sequence[int]]:
    """Return the proposals for sequences; if there is an error, drop the proposer and return none."""
    if not owners:
        return []
    proposers = [own.by_name[name] for own in owners]
    try:
        proposals = type(proposers[0]).propose_all(proposers, most)
        if len(proposals) != len(proposers):
            raise PluginError(f"expected {len(proposers)} drafts, not {proposals!r:.100}")
        return [checked_tokens(tokens, n) for tokens, n in zip(proposals, most, strict=True)]
    except PASSED:
        raise
    except UNEXPECTED as error:
        for own in owners:
            own.drop(name, "propose", error)
        return [[] for _ in owners]
