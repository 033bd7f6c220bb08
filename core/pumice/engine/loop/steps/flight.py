"""A submitted step of any kind: its sequences, its batch, and its pending result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import takewhile

from pumice.backend.pick import Ask, Restriction
from pumice.backend.step import Batch, Pending
from pumice.engine.drafts.drafter import Draft
from pumice.engine.loop.steps.context import StepContext
from pumice.engine.requests.generation import Members, Running


@dataclass(eq=False)
class Flight(ABC):
    """A submitted step of some sequences, or several consecutive ones with one token per sequence each.

    Attributes:
        whole: members whose next token the step yields.
        ask: how the program picks tokens; None: the host samples from the logits.
        lost: sequences whose tokens are no longer of use.
        drafts: drafted tokens of members, which the step verifies for proposers.
        hears: True if a layer that drafts gets its hidden states.
        restoring: restores recurrent states after a wrong drafted token.
    """

    context: StepContext
    members: Members
    whole: Sequence[Running]
    batch: Batch
    pending: Pending
    ask: Ask | None = None
    lost: set[Running] = field(default_factory=set)
    drafts: Mapping[Running, Draft] = field(default_factory=dict)
    hears: bool = False
    restoring: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        """Count the positions that the step computes behind those of its sequences, and the tokens that it picks."""
        for running, n_new in self.members:
            running.n_ahead += n_new
        for running in self.whole:
            running.n_ahead += self.n_steps - 1
            running.n_coming += self.n_steps

    @property
    def n_steps(self) -> int:
        """Consecutive steps of the submission."""
        return len(self.ask.numbers) if self.ask else 1

    def following(self) -> Flight | None:
        """Submit the flight behind this one, which has not ended; None if its tokens are to be known first."""
        return None

    @abstractmethod
    def take(self, following: Flight | None) -> None:
        """Wait for the tokens, and continue with them; ``following`` was submitted behind this flight."""

    def arrived(self) -> set[Running]:
        """Note that results arrived: the tokens are in the cache, and prompts have made progress.

        Return the members that did not end, and were not preempted, since submission.
        """
        context = self.context
        for running in self.whole:
            running.n_coming = max(0, running.n_coming - self.n_steps)
        current = (set(context.scheduler.running) - self.lost) & {running for running, _ in self.members}
        current = {running for running in current if not running.generation.finish_reason}
        for running, n_new in self.members:
            if running in current:
                context.scheduler.computed(running, n_new)
                if running.reading:
                    context.tell(running.progress())
        if context.cache.checkpoints is not None:
            context.states.keep([running for running in current if running.at_mark])
        return current

    def restrict(self) -> None:
        """Pass the restrictions to picks that wait for them, now that all earlier tokens are known."""
        if self.ask and not self.ask.restrictions and any(pick.restricted for pick in self.ask.picks):
            restrictions = [
                Restriction() if running in self.lost else self.context.lookahead.restriction(running)
                for running in self.whole
            ]
            self.pending.restrict(restrictions)
            self.lost |= {running for running in self.whole if running.undecided}

    def settle(self, following: Flight | None) -> None:
        """Forget what was computed beyond the texts; recurrent states that include more are read again.

        Not of sequences in the ``following`` flight, which goes on with them.
        """
        scheduler, others = self.context.scheduler, dict(following.members) if following else {}
        for running in self.whole:
            if running in others:
                continue
            if self.context.cache.checkpoints is None:
                running.n_ahead = 0
            elif running.n_ahead and running in scheduler.running and not running.generation.finish_reason:
                scheduler.begin_again(running)

    def discard(self) -> None:
        """Wait for the results, and forget them."""
        self.lost = {running for running, _ in self.members}
        self.restrict()
        for running in self.lost:
            running.n_ahead = running.n_coming = 0
        if self.ask:
            next(self.pending.tokens())
        else:
            self.pending.outputs()


@contextmanager
def discarding(flight: Flight | None) -> Iterator[None]:
    """On an error, wait for a submitted flight, whose sequences' memory will be reused."""
    try:
        yield
    except Exception:
        if flight:
            with suppress(Exception):  # the first error is the reason
                flight.discard()
        raise


def goes_on(running: Running) -> bool:
    """Return True if only the last token of a sequence is not in the cache."""
    return running.n_unread == 1 and not running.generation.finish_reason


def n_equal(tokens: Sequence[int], others: Iterable[int]) -> int:
    """Return the number of first tokens that are equal."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(tokens, others, strict=False)))
