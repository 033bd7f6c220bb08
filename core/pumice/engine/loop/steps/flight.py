"""A submitted step of any kind: its sequences, its batch, and its pending result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import takewhile

from pumice.backend.pick import Ask, Restriction
from pumice.backend.step import Batch, Pending
from pumice.engine.drafts.drafts import Draft
from pumice.engine.loop.steps.context import StepContext
from pumice.engine.requests.generation import Members, Running


@dataclass(eq=False)
class Flight(ABC):
    """A submitted step of some sequences, or several consecutive ones with one token per sequence each.

    Attributes:
        start: ``time.perf_counter()`` before submission.
        whole: members whose next token the step yields.
        ask: how the program picks tokens; None: the host samples from the logits.
        lost: sequences whose tokens are no longer of use.
        behind: True if submitted before an earlier flight had ended.
        drafts: drafted tokens of members, which the step verifies for proposers.
        repeats: True if tokens of a member are computed again after a wrong draft.
        hears: True if a layer that drafts gets its hidden states.
        restoring: restores recurrent states after a wrong guess or drafted token.
    """

    context: StepContext
    start: float
    members: Members
    whole: Sequence[Running]
    batch: Batch
    pending: Pending
    ask: Ask | None = None
    lost: set[Running] = field(default_factory=set)
    behind: bool = False
    drafts: Mapping[Running, Draft] = field(default_factory=dict)
    repeats: bool = False
    hears: bool = False
    restoring: ExitStack = field(default_factory=ExitStack)

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

    def current(self) -> set[Running]:
        """Return the members that did not end, and were not preempted, since submission."""
        running = set(self.context.scheduler.running) - self.lost
        return {item for item, _ in self.members if item in running and not item.generation.finish_reason}

    def may_pass_tokens(self) -> bool:
        """Return True if steps after this one can take its tokens: their picks depend on no earlier tokens."""
        context = self.context
        if not context.runner.has_registers:
            return False
        if context.cache.checkpoints is not None or context.speculation.next_tokens is not None:
            return False
        if self.ask and any(pick.restricted or pick.last_n for pick in self.ask.picks):
            return False
        return not any(running.generation.media or running.memory for running in context.scheduler.running)

    def restrict(self) -> None:
        """Pass the restrictions to picks that wait for them, now that all earlier tokens are known."""
        if self.ask and any(pick.restricted for pick in self.ask.picks):
            restrictions = [
                Restriction() if running in self.lost else self.context.lookahead.restriction(running)
                for running, _ in self.members
            ]
            self.pending.restrict(restrictions)
            self.lost |= {running for running, _ in self.members if running.undecided}

    def read_again(self) -> None:
        """Read sequences again whose recurrent states include tokens that they did not take."""
        scheduler = self.context.scheduler
        if self.context.cache.checkpoints is None:
            return
        for running in self.whole:
            if running.n_ahead and running in scheduler.running and not running.generation.finish_reason:
                scheduler.begin_again(running)

    def discard(self) -> None:
        """Wait for the results, and forget them."""
        self.lost = {running for running, _ in self.members}
        self.restrict()
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
    """Return True if only the last token of a sequence remains to be computed."""
    return running.pending == 1 and not running.generation.finish_reason


def n_equal(tokens: Sequence[int], others: Iterable[int]) -> int:
    """Return the number of first tokens that are equal."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(tokens, others, strict=False)))
