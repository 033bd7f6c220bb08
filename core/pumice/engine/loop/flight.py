"""A submitted step: its sequences, its batch, and what becomes of its results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pumice.backend.pick import Ahead, Ask, Restriction
from pumice.backend.step import Batch, Pending
from pumice.engine.cache.blocks import BlockTables
from pumice.engine.cache.kv_cache import KVCache, n_equal
from pumice.engine.drafts.drafter import Draft
from pumice.engine.drafts.speculation import Round, Speculation
from pumice.engine.loop.lookahead import Lookahead, PickedStep
from pumice.engine.loop.places import RecurrentStates
from pumice.engine.loop.scheduler import Scheduler
from pumice.engine.messages import Event
from pumice.engine.placement.runner import Runner
from pumice.engine.requests.generation import Generation, Members
from pumice.errors import BackendError

UNKNOWN = -1  # in place of a token that the host does not know


@dataclass(eq=False, frozen=True)
class StepContext:
    """The parts of an engine that submit steps of generations, and continue with their tokens.

    Attributes:
        tell: called with each event.
    """

    runner: Runner
    lookahead: Lookahead
    scheduler: Scheduler
    cache: KVCache
    states: RecurrentStates
    speculation: Speculation
    tell: Callable[[Event], None]

    @property
    def least_forced(self) -> int:
        """The minimum number of forced tokens to read like a prompt, which ends all steps submitted behind others."""
        goes_on = self.lookahead.can.registers and self.cache.checkpoints is None
        return 3 + len(self.scheduler.running) if goes_on else 1


@dataclass(eq=False, slots=True)
class _Rows:
    """The rows of a sequence in a flight, which are taken one by one.

    Attributes:
        first: its first row in the results.
        n: number of its rows.
        drafted: the tokens of the rows behind the first, known to be right where a program picked them itself.
        taken: index of the row that is taken next.
        tables: those in which the step computed it.
        n_before: generated tokens before them.
    """

    running: Generation
    first: int
    n: int
    drafted: Sequence[int] | None
    taken: int = 0
    tables: BlockTables = field(init=False)
    n_before: int = field(init=False)

    def __post_init__(self) -> None:
        self.tables, self.n_before = self.running.tables, len(self.running.generated)


@dataclass(eq=False)
class Flight:
    """A submitted step of some sequences, or several consecutive ones with one token per sequence each.

    A step may have rows of drafts behind the last token of a sequence; they are taken as long as the drafts are the
    tokens that are chosen, with or without drafts.

    Attributes:
        whole: members whose next token the step yields.
        ask: how the program picks tokens; None: the host samples from the logits.
        drafts: drafted tokens of members, which the step verifies for proposers.
        round: what drafts on the device in front of the step, and how many tokens.
        hears: True if a layer that drafts gets its hidden states.
        restoring: restores recurrent states after a wrong drafted token.
        lost: sequences whose tokens are no longer of use.
    """

    context: StepContext
    members: Members
    whole: Sequence[Generation]
    batch: Batch
    pending: Pending
    ask: Ask | None = None
    drafts: Mapping[Generation, Draft] = field(default_factory=dict)
    round: Round | None = None
    hears: bool = False
    restoring: ExitStack = field(default_factory=ExitStack)
    lost: set[Generation] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Count the positions that the step computes behind those of its sequences, and the tokens that it picks."""
        for running, n_new in self.members:
            running.n_ahead += n_new
        for running in self.whole:
            running.n_ahead += self.n_steps - 1
            running.n_coming += self.n_steps
        self._tables = {running: running.tables for running, _ in self.members}
        self._steps: list[PickedStep] = []
        self._results: Iterator[Ahead] = iter(())
        self._logits: NDArray[np.float32] = np.empty((0, 0), np.float32)

    @property
    def n_steps(self) -> int:
        """Consecutive steps of the submission."""
        return len(self.ask.numbers) if self.ask else 1

    @property
    def n_drafted(self) -> int:
        """Rows of drafts of each sequence that the program verifies."""
        return self.ask.n_drafted if self.ask else 0

    def _has(self, running: Generation) -> bool:
        """Return True if a member has the place that it had at submission."""
        return running.tables is self._tables[running]

    def restrict(self) -> None:
        """Pass the restrictions to picks that wait for them, now that all earlier tokens are known."""
        if self.ask and not self.ask.restrictions and any(pick.restricted for pick in self.ask.picks):
            restrictions = [
                self.context.lookahead.restriction(running)
                if self._has(running) and running not in self.lost
                else Restriction()
                for running in self.whole
            ]
            self.pending.restrict(restrictions)
            self.lost |= {running for running in self.whole if running.undecided}

    def discard(self) -> None:
        """Wait for the results, and forget them."""
        self.lost = {running for running, _ in self.members}
        self.restrict()
        for running in filter(self._has, self.lost):
            running.n_ahead = running.n_coming = 0
        if self.ask:
            next(self.pending.tokens())
        else:
            self.pending.outputs()

    # --- results

    def take(self, following: Flight | None) -> None:
        """Wait for the tokens, and continue with them; ``following`` was submitted behind this flight."""
        with self.restoring:
            rows = self._rows()
            current = self._arrived()
            lost = self._take_tokens([item for item in rows if item.running in current])
        if following:
            following.lost |= lost.intersection(running for running, _ in following.members)
            following.restrict()
        self._settle(following)
        if following and self.round:
            self.round.drafter.went_on(self.whole, lost)
            self.hears = False

    def _rows(self) -> list[_Rows]:
        """Wait for the first results, and return the rows of each sequence whose next token they give."""
        if self.ask is None:
            outputs, rows, first = self.pending.outputs(), [], 0
            self._logits = outputs["logits"] if self.whole else self._logits
            for running in self.whole:
                drafted = self.drafts[running].tokens if running in self.drafts else ()
                rows.append(_Rows(running, first, 1 + len(drafted), drafted))
                first += 1 + len(drafted)
            return rows
        self._results = self.pending.tokens()
        ahead = self._step(0).ahead
        if ahead.n_taken is None:
            return [_Rows(item, i, self.n_steps, None) for i, item in enumerate(self.whole)]
        rows, n_rows = [], 1 + self.n_drafted
        for i, (running, n_taken) in enumerate(zip(self.whole, ahead.n_taken[0].tolist(), strict=True)):
            first = i * n_rows
            if self.round:
                self._note_taken(self.round, running, first, ahead.picked[0, first : first + n_taken])
            drafted = self.batch.tokens[first + 1 : first + n_rows].tolist()
            rows.append(_Rows(running, first, n_taken, drafted))
        return rows

    def _step(self, index: int) -> PickedStep:
        """Return the results of a step, once they have arrived."""
        while index >= len(self._steps):
            self._steps += PickedStep.all_of(next(self._results))
        return self._steps[index]

    def _note_taken(self, round: Round, running: Generation, first: int, picked: NDArray[np.int32]) -> None:
        """Give the batch the positions of a sequence's rows, and the tokens that are known now: the right ones."""
        end, text = first + 1 + self.n_drafted, running.tokens
        self.batch.tokens[first:end] = UNKNOWN
        self.batch.tokens[first : first + len(picked)] = [text[-1], *picked[:-1]]
        self.batch.positions[first:end] = np.arange(len(text) - 1, len(text) + self.n_drafted)
        round.drafter.took(running, picked[: min(len(picked), round.n) - 1].tolist())

    def _arrived(self) -> set[Generation]:
        """Note that results arrived: the tokens are in the cache, and prompts have made progress.

        Return the members that did not end, and were not preempted, since submission.
        """
        context = self.context
        for running in filter(self._has, self.whole):
            running.n_coming = max(0, running.n_coming - self.n_steps)
        current = {running for running in filter(self._has, self._tables) if not running.finish_reason} - self.lost
        for running, n_new in self.members:
            if running in current:
                context.scheduler.computed(running, n_new)
                if not running.generated:
                    context.tell(running.progress())
        if context.cache.checkpoints is not None:
            context.states.keep([running for running in current if running.n_past in running.tables.marks])
        return current

    def _take_tokens(self, rows: Sequence[_Rows]) -> set[Generation]:
        """Continue with the tokens of rows; return the sequences that ended or changed within them."""
        scheduler, kept = self.context.scheduler, set[Generation]()
        for item in rows if self.n_drafted else ():
            item.running.n_ahead += item.n - 1
        going = []
        for item in rows:
            if not self._picks_all(item):
                going.append(item)
            elif self._takes_all(item):
                kept.add(item.running)
        while going:
            chosen = [(item, token) for item in going if (token := self._token(item)) is not None]
            scheduler.take([(item.running, token) for item, token in chosen], self.context.least_forced)
            going.clear()
            for item, _ in chosen:
                if not self._is_unchanged(item):
                    continue
                if item.taken + 1 == item.n:
                    kept.add(item.running)
                elif item.drafted is None or item.drafted[item.taken] == item.running.tokens[-1]:
                    item.taken += 1
                    if item.drafted is None:
                        self._step(item.taken)  # it has arrived
                    scheduler.computed(item.running, 1)
                    going.append(item)
        for item in rows:
            self._judge(item)
        return set(self.whole) - kept

    def _picks_all(self, item: _Rows) -> bool:
        """Return True if all tokens of a sequence are known, and nothing depends on those between."""
        running = item.running
        if (
            self.ask is None
            or item.drafted is not None
            or running.chain.masking
            or running.request.logprobs is not None
        ):
            return False
        return self.context.lookahead.trusts(running) and all(
            self._step(i).are_finite[item.first] for i in range(item.n)
        )

    def _takes_all(self, item: _Rows) -> bool:
        """Continue with all tokens of a sequence, up to its end; return True if it goes on behind them."""
        tokens = [self._step(i).tokens[item.first] for i in range(item.n)]
        item.taken = item.n - 1
        self.context.scheduler.take_all(item.running, tokens)
        return self._is_unchanged(item)

    def _token(self, item: _Rows) -> int | None:
        """Return the next token of a sequence; None if it failed, or its last token is to be computed again.

        An error, such as logits that are not finite, is that of its sequence alone.
        """
        context, running = self.context, item.running
        try:
            if self.ask is None:
                return running.sample(self._logits[item.first + item.taken])
            if item.drafted is None:
                token = context.lookahead.token(running, self._step(item.taken), item.first)
            else:
                token = context.lookahead.token(running, self._step(0), item.first + item.taken)
        except BackendError as error:
            context.scheduler.fail([running], BackendError(f"{context.runner.placed.main.title}: {error}"))
            return None
        except Exception as error:
            context.scheduler.fail([running], error)
            return None
        if token is None:  # all logits are needed
            running.undecided = True
            running.n_past, running.n_ahead = running.n_past - 1, running.n_ahead + 1
        return token

    def _is_unchanged(self, item: _Rows) -> bool:
        """Return True if only the last token of a sequence is not in the cache, and its next row is as it would be.

        Tokens that a mask forces, and that the sequence has appended by itself, may be in the rows, too.
        """
        running, chain = item.running, item.running.chain
        if running.finish_reason or running.tables is not item.tables:
            return False
        if item.drafted is not None and running.n_unread > 1:
            n = n_equal(running.tokens[running.n_past : -1], item.drafted[item.taken : item.n - 1])
            self.context.scheduler.computed(running, n)
            item.taken += n
        pick = chain.pick if self.n_drafted else None
        is_expected = pick is None or not pick.restricted or chain.was_expected
        return running.n_unread == 1 and is_expected

    def _judge(self, item: _Rows) -> None:
        """Record how many drafted tokens of a sequence were accepted."""
        if self.round:
            name, n = self.round.drafter.name, self.round.n
            self.context.speculation.judge_round(name, item.running, n, item.n - 1, item.taken)
        elif draft := self.drafts.get(item.running):
            coming = item.running.generated[item.n_before :]
            draft.n_accepted = n_equal(draft.tokens[: item.taken], coming)

    def _settle(self, following: Flight | None) -> None:
        """Forget what was computed beyond the texts; recurrent states that include more are read again.

        Not of sequences in the ``following`` flight, which goes on with them.
        """
        others = dict(following.members) if following else {}
        for running in filter(self._has, self.whole):
            if running in others:
                continue
            if self.context.cache.checkpoints is None:
                running.n_ahead = 0
            elif running.n_ahead and not running.finish_reason:
                self.context.scheduler.places.begin_again(running)


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
