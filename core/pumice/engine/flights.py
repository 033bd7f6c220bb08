"""Submitted steps: the engine keeps several steps in flight, and continues with the tokens of the first.

The next tokens are chosen by the samplers from a step's logits, or picked by the program: guesses are verified by the
samplers, and exact picks are followed by further steps before the host has read them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import MAIN, STREAM
from pumice.backend.pick import Ahead, Ask, Restriction
from pumice.backend.step import Batch, PassedTokens, Pending
from pumice.engine import logprobs
from pumice.engine.batches import Part, batch_after, batch_of
from pumice.engine.device_drafts import NO_DRAFTS, Plan
from pumice.engine.generation import Running
from pumice.engine.grammar_rows import restricted
from pumice.engine.host_drafts import MEASURED, HostDrafts, Kind
from pumice.engine.kv_cache import BlockTables, KVCache
from pumice.engine.lookahead import Lookahead
from pumice.engine.messages import Event
from pumice.engine.next_tokens import NextTokens
from pumice.engine.rounds import Drafter, passed_to
from pumice.engine.runner import Runner
from pumice.engine.schedule import Members
from pumice.engine.scheduler import Scheduler
from pumice.engine.speculation import Draft, Speculation, may_draft
from pumice.engine.states import RecurrentStates
from pumice.graph.media import ROWS

UNKNOWN = -1  # in place of a token that the host does not know


FIRST_STEPS = 2
"""Steps of the first of several flights behind each other; each has at most twice as many steps as the one before.

A program that records steps takes longer for many of them than a device for a few: recording 16 steps of 16 sequences
of llama-1b took 24 to 45 ms on an H100's machine, in which its tokens waited, and computing them 16.
"""


@dataclass(eq=False, slots=True)
class Flight:
    """A submitted step of some sequences, or several consecutive ones with one token per sequence each.

    Attributes:
        whole: members whose next token the step yields.
        land: called with the flight, to continue with its results.
        ask: how the program picks tokens; None: the host samples from the logits.
        versions: versions of each sequence's block tables, if steps may follow.
        lost: sequences whose tokens are no longer of use.
        behind: True if submitted behind another flight.
        goes_on: True if further steps may follow it.
        open: resources to close after its tokens were processed.
        drafts: drafted tokens of members, computed and verified by the step.
        plan: steps with tokens that the program drafts.
        repeats: True if tokens of a member are computed again after a wrong draft.
        hears: True if a layer that drafts gets its hidden states.
        kind: the kind of batch for which drafts of the host compete with steps of the program; None: they do not.
        n_round: tokens of each member that a layer drafts in steps submitted before it, which it verifies.
        asks: True if proposers were asked before it, or are to be asked behind it.
        advanced: True if its tokens count as computed, since a step may follow that was submitted before it ended.
        began: ``time.perf_counter()`` before submission.
        spent: the time before submission by the clock that measures steps for drafts.
    """

    members: Members
    whole: Sequence[Running]
    batch: Batch
    pending: Pending
    land: Callable[[Flight], None]
    ask: Ask | None = None
    versions: Sequence[int] = ()
    lost: set[Running] = field(default_factory=set)
    behind: bool = False
    goes_on: bool = True
    open: ExitStack | None = None
    drafts: Mapping[Running, Draft] = field(default_factory=dict)
    plan: Plan = NO_DRAFTS
    repeats: bool = False
    hears: bool = False
    kind: Kind | None = None
    n_round: int = 0
    asks: bool = False
    advanced: bool = False
    began: float = field(default_factory=time.perf_counter)
    spent: float = 0.0

    @property
    def n_steps(self) -> int:
        return len(self.ask.numbers) if self.ask else 1


class _Weighed(NamedTuple):
    """The parts of a flight that are weighed, without its sequences."""

    kind: Kind | None
    asks: bool
    n_round: int
    behind: bool


class Landed(NamedTuple):
    """A row of picked tokens: those of a sequence, of which the first ``n_good`` have finite logits."""

    running: Running
    ahead: Ahead
    row: int
    n_good: int


@dataclass(eq=False, slots=True)
class _Verifying:
    """A sequence whose draft is verified: its next token is from a row of logits, or was ``drafted`` correctly."""

    running: Running
    row: int
    drafted: Sequence[int]
    tables: BlockTables

    def goes_on(self) -> int:
        """Return how many of its next tokens have computed rows: all, or it has ended."""
        running = self.running
        if running.generation.finish_reason or running.tables is not self.tables:
            return 0
        coming = running.generation.tokens[running.n_past :]
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(coming, self.drafted, strict=False)))


class Flights:
    """Submits steps, and processes their results in order.

    Args:
        tell: called with each event.
    """

    def __init__(
        self,
        runner: Runner,
        lookahead: Lookahead,
        scheduler: Scheduler,
        cache: KVCache,
        states: RecurrentStates,
        tell: Callable[[Event], None],
        speculation: Speculation,
    ) -> None:
        self.on_way: deque[Flight] = deque()
        self.lookahead = lookahead
        self._runner = runner
        self._can = lookahead.can
        self._scheduler = scheduler
        self._cache = cache
        self._states = states
        self._tell = tell
        self._speculation = speculation
        self._landed = 0.0
        self._prepares_drafts = False
        self._n_started = 0  # sizes of steps, when the latest flight had landed
        # programs that pick no tokens compute in this thread, whose time other programs do not lengthen
        self._clock = speculation.clock = time.perf_counter if self._can.max_steps else time.thread_time
        self._plain: tuple[list[int], Batch | None] = [], None  # the latest step, with versions of its tables
        self._latest: _Weighed | None = None  # of the latest flight that has landed, if flights are weighed

    def choose(self) -> Members:
        """Return the members of the next step, or an empty list if enough steps are pending.

        If the program takes several steps at once, the sequences are divided among them.
        """
        if len(self.on_way) >= self._can.n_in_flight:
            return []
        if self._can.n_in_flight == 1:
            return self._scheduler.choose()
        busy = [running for flight in self.on_way for running, _ in flight.members]
        n_waiting = len([generation for generation in self._scheduler.waiting if generation.ready])
        n_all = min(len(self._scheduler.running) + n_waiting, self._scheduler.limits.n_seqs)
        return self._scheduler.choose(busy, -(-n_all // self._can.n_in_flight))

    def begin(self, members: Members) -> Flight:
        """Submit a step, or several consecutive ones if the program may compute them, and return the flight."""
        flight = self._begin(members)
        self.on_way.append(flight)
        return flight

    def land(self, flight: Flight, goes_on: bool = True) -> float:
        """Wait for a flight, continue with its tokens, and return its seconds.

        Args:
            flight: the oldest flight.
            goes_on: whether further steps may follow the flight.
        """
        self.on_way.remove(flight)
        began = max(flight.began, self._landed) if flight.behind else flight.began
        weighs = self._speculation.host is not None
        flight.goes_on, landed, n_tokens = goes_on, self._landed, _n_tokens(flight) if weighs else 0
        flight.land(flight)
        if self._landed == landed:
            self._landed = time.perf_counter()
        if weighs:
            self._weigh(flight, _n_tokens(flight) - n_tokens, self._landed - landed)
        if flight.hears:
            self._speculation.landed(flight.batch, flight.members, flight.pending.outputs()[STREAM])
        self._speculation.took(flight.members, flight.drafts, (self._clock() - flight.spent) / flight.n_steps)
        return time.perf_counter() - began

    def _begin(self, members: Members) -> Flight:
        if self._can.n_in_flight > 1:
            return self._step(members, {}, False)
        if is_own := self._drafts_itself(members):
            plan = self._planned([running for running, _ in members])
            if plan.n_steps:
                return self._draft_ahead(members, plan)
        kind = None if is_own else self._kind(members)
        if again := self._missed(members, kind):
            self._speculation.passed(1)
            flight = self._step(again, {}, True)
            flight.kind, flight.asks = kind, True
            return flight
        if not is_own and (paired := self._round(members, kind)):
            return paired
        drafts, n_free = self._drafted(members, kind) if not is_own else ({}, 0)
        flight = self._submit(members, drafts, n_free, is_own)
        flight.kind, flight.asks = kind, bool(drafts) or n_free <= 1
        return flight

    def _submit(self, members: Members, drafts: Mapping[Running, Draft], n_free: int, is_own: bool) -> Flight:
        """Submit a step that verifies these drafts, or without any as many as the program may compute by itself."""
        if drafts and (n_drafted := self._n_given(members, drafts)):
            return self._verify_given(members, drafts, n_drafted)
        if drafts or not self._can.max_steps or (n_free == 1 and self._waits_for_layer(members)):
            return self._step(members, drafts, True)
        sequences = [running for running, _ in members]
        most = self._speculation.device.most_plain(sequences) if is_own else n_free
        flies = self._decided(members)
        n_steps = self.lookahead.steps(members, most=min(most, FIRST_STEPS) if flies else most)
        if n_steps and flies:
            return self._fly(members, n_steps)
        if n_steps and not self.lookahead.restricts([running.generation for running, _ in members]):
            return self._guess(members, n_steps)
        return self._step(members, {}, n_free <= 1)

    def _missed(self, members: Members, kind: Kind | None) -> Members:
        """Return the members with the tokens whose hidden states a layer that drafts missed; none if it missed none.

        A program that picks tokens gives none. The layer may begin at any block, so the tokens of the latest block are
        computed again. Keys outside of attention windows may be gone, and recurrent states do not go back.
        """
        speculation, limits = self._speculation, self._scheduler.limits
        if speculation.next_tokens is None or self._cache.checkpoints is not None or set(limits.n_blocks) != {0}:
            return []
        if self._runner.listening == MAIN or not all(may_draft(running, n_new) for running, n_new in members):
            return []
        is_free = speculation.host is not None and (kind is None or speculation.host.n_free(kind) > 0)
        missing = [] if is_free else speculation.missing(members)
        if not missing or limits.n_batch < len(members) + limits.block_size:
            return []
        for running in missing[: (limits.n_batch - len(members)) // limits.block_size]:
            running.n_again = running.n_past % limits.block_size
            running.n_past -= running.n_again
        return [(running, running.pending) for running, _ in members]

    def _waits_for_layer(self, members: Members) -> bool:
        """Return True if a layer that drafts is to hear a step whose tokens the program could pick."""
        speculation = self._speculation
        return speculation.next_tokens is not None and speculation.hears(members)

    def _drafted(self, members: Members, kind: Kind | None) -> tuple[Mapping[Running, Draft], int]:
        """Return the drafts of proposers, and the number of steps that need not ask them again."""
        speculation, pace = self._speculation, None
        if kind is not None and speculation.host is not None:
            if n_free := self._n_left_to_program(members, kind, speculation.host):
                speculation.passed(1)
                return {}, n_free
            pace = speculation.host.pace(kind)
        speculation.length.keep_pace(len(members), pace)
        drafts = speculation.draft(members, self._cache, self._scheduler.limits, self._most_drafted(members))
        if speculation.gives_up and kind is not None and speculation.host is not None:
            speculation.host.give_up(kind)
            return drafts, speculation.host.n_free(kind)
        return drafts, speculation.n_free

    def _n_left_to_program(self, members: Members, kind: Kind, host: HostDrafts) -> int:
        """Return the number of next steps without drafts of the host; trials wait until their steps are prepared."""
        if self.lookahead.verifies(members):
            self._prepare_drafts()
            if self._runner.prepares_drafts:
                return MEASURED
        return host.n_free(kind)

    def _most_drafted(self, members: Members) -> int | None:
        """Return the maximum tokens of a draft: with masks those that the program verifies, since the host takes long.

        None: as many as there is room for.
        """
        if not (
            self.lookahead.verifies(members) and self.lookahead.restricts([item.generation for item, _ in members])
        ):
            return None
        return self.lookahead.lengths(len(members))[-1]

    def _kind(self, members: Members) -> Kind | None:
        """Return the kind of a batch whose steps without drafts have a pace of their own.

        None if the program computes no steps by itself, or nobody would draft for it.
        """
        if self._speculation.host is None or not all(may_draft(running, n_new) for running, n_new in members):
            return None
        names = self._speculation.chosen(members)
        if not names:
            return None
        sequences = [running for running, _ in members]
        decides = self.lookahead.decides(sequences)
        return len(members), names, decides and self.lookahead.restricts([item.generation for item in sequences])

    def _weigh(self, flight: Flight, n_tokens: int, seconds: float) -> None:
        """Weigh the time since the latest result against the pace of steps that the program computes by itself."""
        kind, latest = flight.kind, self._latest
        self._latest = _Weighed(kind, flight.asks, flight.n_round, flight.behind)
        n_before, self._n_started = self._n_started, self._speculation.n_started
        host, n_seqs = self._speculation.host, len(flight.members)
        if host is None or latest is None or kind is None or kind != latest.kind or not n_tokens:
            return
        if any(running.generation.finish_reason for running, _ in flight.members):
            return
        if not (flight.asks or latest.asks):
            host.ran(kind, n_tokens / n_seqs, seconds)
            return
        is_new, rounds = self._n_started > n_before, self._speculation.rounds
        usual = rounds.usual(kind, flight.n_round) if flight.n_round else None
        host.drafted(kind, len(flight.batch.tokens), n_tokens / n_seqs, seconds, is_new, usual)
        goes_on = flight.behind or (latest.n_round == flight.n_round and not latest.behind)
        if flight.n_round and goes_on and not is_new:  # the first round waits for more
            rounds.took(kind, flight.n_round, seconds)

    def _step(self, members: Members, drafts: Mapping[Running, Draft], hears: bool) -> Flight:
        """Submit a single step; recurrent states are restored after a wrong drafted token.

        ``hears``: whether a layer that drafts may want its hidden states.
        """
        began, spent = time.perf_counter(), self._clock()
        whole = [running for running, n_new in members if running.pending == n_new]
        drafted = {running: draft.tokens for running, draft in drafts.items()}
        with ExitStack() as stack:
            if drafted:
                rows = [(item, n_new + len(drafted[item])) for item, n_new in members if item in drafted]
                stack.enter_context(self._states.taking_back(rows))
            batch = self._batch_of_step([running.part(n_new, drafted.get(running, ())) for running, n_new in members])
            graph = self._listening(members, batch) if hears else None
            ask = self._ask(batch, whole) if self._can.max_steps and not drafts and graph is None else None
            pending = self._runner.submit(batch, ask, graph=graph) if graph else self._runner.submit(batch, ask)
            for running, _ in members if self._can.n_in_flight > 1 else ():
                running.n_ahead = 1
            repeats = any(running.n_again for running, _ in members)
            is_taken = ask is not None or (not whole and self._can.takes and graph is None)
            land = self._sample_drafted if drafts else self._take if is_taken else self._sample
            flight = Flight(members, whole, batch, pending, land, ask, drafts=drafts, repeats=repeats)
            flight.hears = graph is not None
            flight.began, flight.spent = began, spent
            flight.open = stack.pop_all() if drafts else None
            return flight

    def _batch_of_step(self, parts: Sequence[Part]) -> Batch:
        """Return the batch of a step; it shares arrays with the step before if tokens and positions alone differ."""
        is_plain = not self._can.max_steps and all(map(_is_plain, parts))
        versions = [part.place.tables.version for part in parts] if is_plain else []
        last, before = self._plain
        batch = batch_after(before, parts) if before is not None and versions == last else batch_of(self._cache, parts)
        self._plain = versions, batch if is_plain else None
        return batch

    def _listening(self, members: Members, batch: Batch) -> str | None:
        """Return the graph that gives the hidden states of a step, if a layer that drafts wants them."""
        if self._speculation.next_tokens is None:
            return None
        graph = self._runner.listening
        is_wanted = graph == MAIN or (ROWS not in batch.inputs and self._speculation.hears(members))
        return graph if is_wanted else None

    def _computed(self, members: Members) -> None:
        self._advance(members)
        self._report(members)

    def _advance(self, members: Members) -> None:
        for running, n_new in members:
            if running.began is None:
                self._speculation.wake()
            self._scheduler.computed(running, n_new)

    def _report(self, members: Members) -> None:
        for running, _ in members:
            if running.reading:
                self._tell(running.progress())
        if self._cache.checkpoints is not None:
            self._states.keep([running for running, _ in members if running.at_mark])

    # --- the host chooses

    def _sample_drafted(self, flight: Flight) -> None:
        """Continue with the tokens that each sequence's chain chooses, as long as they match its draft."""
        with flight.open or nullcontext():
            logits = flight.pending.outputs()["logits"]
            self._computed(flight.members)
            going, row = [], 0
            for running in flight.whole:
                draft = flight.drafts.get(running)
                going.append(_Verifying(running, row, draft.tokens if draft else (), running.tables))
                row += 1 + (len(draft.tokens) if draft else 0)
            while going:
                self._choose([item.running for item in going], logits[[item.row for item in going]])
                going = [item for item in going if self._verify_next(item, flight.drafts)]

    def _verify_next(self, verified: _Verifying, drafts: Mapping[Running, Draft]) -> bool:
        """Return True if all next tokens were drafted, so that a row for the token after them exists."""
        n = verified.goes_on()
        if not n:
            return False
        drafts[verified.running].n_accepted += n
        self._scheduler.computed(verified.running, n)
        verified.row, verified.drafted = verified.row + n, verified.drafted[n:]
        return verified.running.pending == 0

    def _sample(self, flight: Flight) -> None:
        """Continue with the token that each sequence's chain chooses from its row of logits."""
        if self._can.n_in_flight == 1:
            logits = flight.pending.outputs()["logits"]
            self._computed(flight.members)
            self._choose(flight.whole, logits)
            return
        try:
            logits = flight.pending.outputs()["logits"]
        finally:
            for running, _ in flight.members:
                running.n_ahead = 0
        current = set(self._scheduler.running)  # without sequences that ended while the step was pending
        rows = [row for row, running in enumerate(flight.whole) if running in current]
        self._computed([(running, n_new) for running, n_new in flight.members if running in current])
        self._choose([flight.whole[row] for row in rows], logits[rows])

    def _choose(self, whole: Sequence[Running], logits: NDArray[np.float32]) -> None:
        totals = logprobs.totals(logits, [running.generation.wants_raw for running in whole])
        tokens: list[tuple[Running, int]] = []
        for running, row, total in zip(whole, logits, totals, strict=True):
            token = running.generation.sample(row, total=total)
            assert token is not None
            tokens.append((running, token))
        self._scheduler.take(tokens)

    # --- the program decides one token, of any batch

    def _ask(self, batch: Batch, whole: Sequence[Running]) -> Ask | None:
        """Return the ``Ask`` for the next token of each whole sequence; None if all logits are needed."""
        if not whole or not self._runner.picks(batch) or not self.lookahead.decides(whole):
            return None
        ask = self.lookahead.ask([running.generation for running in whole], 1)
        if not self.lookahead.restricts([running.generation for running in whole]):
            return ask
        restrictions = [self.lookahead.restriction(running) for running in whole]
        return None if any(running.undecided for running in whole) else replace(ask, restrictions=restrictions)

    def _take(self, flight: Flight) -> None:
        """Continue with the picked tokens, if any, once a step that reads more of prompts is submitted after it."""
        following = self._after(flight)
        with self._discarding(following):
            self._take_first(flight, following)
        if following:
            self.on_way.append(following)

    def _take_first(self, flight: Flight, following: Flight | None) -> None:
        """Continue with the picked tokens, or with those that the host chooses if a logit is not finite."""
        ahead = next(flight.pending.tokens()) if flight.ask else None
        if ahead is None:
            flight.pending.outputs()
        self._landed = time.perf_counter()
        current = self._current(flight)
        members = [(running, n_new) for running, n_new in flight.members if running in current]
        rows = [(row, running) for row, running in enumerate(flight.whole) if running in current]
        for running in flight.whole:
            running.n_coming = 0
        is_finite = ahead is None or bool(np.isfinite(ahead.logits[0, [row for row, _ in rows], 0]).all())
        if not is_finite and self._cache.checkpoints is not None:
            for running, _ in members:  # the same step again would advance recurrent states twice
                self._scheduler.begin_again(running)
                running.undecided = running in flight.whole
            return
        logits = None if is_finite else self._runner.run(flight.batch)
        if not flight.advanced:
            self._advance(members)
        self._report(members)
        if logits is not None:
            if following:
                following.lost |= set(flight.whole)
            self._choose([running for _, running in rows], logits[[row for row, _ in rows]])
        elif ahead is not None:
            tokens = [(running, self._first(running, ahead, row)) for row, running in rows]
            if following:
                following.batch = _with_tokens(following, dict(tokens))
            self._scheduler.take(tokens, self._least_forced)

    def _first(self, running: Running, ahead: Ahead, row: int) -> int:
        token = self.lookahead.token(running.generation, ahead, 0, row)
        assert token is not None
        return token

    def _current(self, flight: Flight) -> set[Running]:
        """Return the members of a flight that did not end, and were not preempted, since it was submitted."""
        running = set(self._scheduler.running) - flight.lost
        return {item for item, _ in flight.members if item in running and not item.generation.finish_reason}

    # --- ... and the next step of prompts is submitted before its tokens are known

    def _after(self, flight: Flight) -> Flight | None:
        """Submit a step after a pending one, whose tokens it takes on the device; None if it has to wait for them.

        A step that could take more tokens waits: sequences may arrive until the pending one has ended.
        """
        scheduler = self._scheduler
        if not self._may_submit_after(flight):
            return None
        current = self._current(flight)
        self._advance([(running, n_new) for running, n_new in flight.members if running in current])
        flight.advanced = True
        for running in flight.whole:
            running.n_coming = 1
        if not any(running.reads_on for running in scheduler.running):
            return None
        ending = [running for running in flight.whole if _ends_with_next(running)]
        members = scheduler.choose(ending)
        taken = dict(members)
        others = [running for running in scheduler.running if running not in ending]
        is_full = sum(taken.values()) == scheduler.limits.n_batch or any(
            running.pending > taken.get(running, 0) for running in others
        )
        return self._step_after(flight, members) if members and is_full else None

    def _may_submit_after(self, flight: Flight) -> bool:
        """Return True if steps after a pending one can take its tokens: their picks depend on no earlier tokens."""
        if not (flight.goes_on and self._can.takes and self._runner.takes):
            return False
        if self._cache.checkpoints is not None or self._speculation.next_tokens is not None:
            return False
        if flight.ask and any(pick.restricted or pick.last_n for pick in flight.ask.picks):
            return False
        return not any(running.generation.media or running.memory for running in self._scheduler.running)

    def _step_after(self, before: Flight, members: Members) -> Flight | None:
        """Submit a step after a pending one; None if the program cannot decide all of its tokens."""
        began, spent = time.perf_counter(), self._clock()
        if any(running.generation.media or running.memory for running, _ in members):
            return None
        whole = [running for running, n_new in members if running.pending == n_new]
        generations = [running.generation for running in whole]
        if not self.lookahead.decides(whole) or self.lookahead.restricts(generations):
            return None
        batch = batch_of(self._cache, [running.part(n_new) for running, n_new in members])
        if whole and not self._runner.picks(batch):
            return None
        rows = {running: -1 - row for row, running in enumerate(before.whole)}
        for (running, _), start in zip(members, batch.seq_starts, strict=False):
            if running.n_coming:
                batch.tokens[start] = rows[running]
        ask = self.lookahead.ask(generations, 1, [running.n_coming for running in whole]) if whole else None
        pending = self._runner.submit(batch, ask, after=before.pending)
        self._speculation.passed(1)
        flight = Flight(members, whole, batch, pending, self._take, ask, behind=True)
        flight.began, flight.spent = began, spent
        return flight

    @property
    def _least_forced(self) -> int:
        """Return the minimum number of forced tokens to read like a prompt, which ends all flights."""
        flies = self._can.follows and self._cache.checkpoints is None
        return 3 + len(self._scheduler.running) if flies else 1

    # --- the program guesses several

    def _guess(self, members: Members, n_steps: int) -> Flight:
        """Let the program guess tokens; a sequence's chain ends its steps at a wrong guess.

        Later tokens overwrite cache entries computed beyond a wrong guess; recurrent states are restored.
        """
        whole = [running for running, _ in members]
        with ExitStack() as stack:
            stack.enter_context(self._states.taking_back([(running, n_steps) for running in whole]))
            ask = self.lookahead.ask([running.generation for running in whole], n_steps)
            batch = batch_of(self._cache, [running.part(n_new) for running, n_new in members])
            began, spent = time.perf_counter(), self._clock()
            pending = self._runner.submit(batch, ask)
            self._speculation.passed(n_steps - 1)
            flight = Flight(members, whole, batch, pending, self._verify, ask, open=stack.pop_all(), began=began)
            flight.spent = spent
            return flight

    def _verify(self, flight: Flight) -> None:
        """Continue with the guesses up to the first wrong one."""
        members, n_steps = flight.members, flight.n_steps
        n_right = [0] * len(members)
        guessed = list(enumerate(running for running, _ in members))  # sequences with only right guesses so far
        seconds, n_computed, started = 0.0, 0, flight.began
        with flight.open or nullcontext():
            parts = flight.pending.tokens()
            while guessed and n_computed < n_steps:
                ahead = next(parts)
                seconds += time.perf_counter() - started
                n_computed += len(ahead.picked)
                for row, running in guessed:
                    n_right[row] += self._take_guesses(running, ahead, row)
                guessed = [(row, running) for row, running in guessed if n_right[row] == n_computed]
                started = time.perf_counter()
        self.lookahead.took(len(members), n_computed, seconds)
        for (running, _), n in zip(members, n_right, strict=True):
            if not running.generation.finish_reason:
                running.generation.guessed(n, n_steps)

    def _take_guesses(self, running: Running, ahead: Ahead, row: int) -> int:
        """Continue with the tokens of steps until a guess is wrong; return the number of right guesses."""
        n_steps = len(ahead.picked)
        return next((step for step in range(n_steps) if not self._take_guess(running, ahead, step, row)), n_steps)

    def _take_guess(self, running: Running, ahead: Ahead, step: int, row: int) -> bool:
        """Continue with the token of a step. Return True if the next step was computed for it."""
        token = self.lookahead.token(running.generation, ahead, step, row)
        if token is None:
            running.undecided = True
            return False
        self._scheduler.computed(running, 1)
        self._scheduler.take([(running, token)])
        return token == ahead.picked[step, row] and _goes_on(running)

    # --- the program decides, and others follow

    def _decided(self, members: Members) -> bool:
        """Return True if the program decides all tokens, so that no step has to be undone."""
        if not self._can.follows:
            return False
        if not all(running.memory is None and self.lookahead.trusts(running.generation) for running, _ in members):
            return False
        if self._cache.checkpoints is None:
            return True
        # a recurrent state cannot insert forced tokens before others
        return not self.lookahead.restricts([running.generation for running, _ in members])

    def _fly(self, members: Members, n_steps: int, before: Flight | None = None) -> Flight:
        """Submit steps with exact picks, optionally behind others of the same sequences."""
        began, spent = time.perf_counter(), self._clock()
        n_ahead = before.n_steps if before else 0
        generations = [running.generation for running, _ in members]
        ask = self.lookahead.ask(generations, n_steps, n_ahead, before.ask if before else None)
        for running, _ in members:
            running.n_ahead = n_ahead + n_steps
        versions = [running.tables.version for running, _ in members]
        batch = self._batch_behind(before, versions) if before else self._batch(members)
        pending = self._runner.submit(batch, ask, before.pending if before else None)
        self._speculation.passed(n_steps if before else n_steps - 1)
        flight = Flight(members, [running for running, _ in members], batch, pending, self._follow, ask, versions)
        flight.began, flight.spent, flight.behind = began, spent, before is not None
        flight.kind = before.kind if before else None
        if not before:
            with self._discarding(flight):
                self._restrict(flight)
        return flight

    def _batch(self, members: Members) -> Batch:
        """Return the batch of each sequence's last token."""
        return batch_of(
            self._cache,
            [
                Part(
                    *(item, item.generation.tokens[-1:], item.n_past, [0]),
                    item.generation.adapter_scales,
                    item.generation.media,
                )
                for item, _ in members
            ],
        )

    def _batch_behind(self, before: Flight, versions: Sequence[int]) -> Batch:
        """Return the batch of steps behind others of the same sequences; unchanged arrays are reused."""
        batch = before.batch
        tables = batch.block_tables
        if versions != before.versions:
            tables = self._cache.batch_tables([running.tables for running, _ in before.members])
        return replace(batch, positions=batch.positions + before.n_steps, block_tables=tables)

    def _restrict(self, flight: Flight) -> None:
        """Pass the restrictions to a flight that waits for them, now that all earlier tokens are known."""
        assert flight.ask is not None
        if any(pick.restricted for pick in flight.ask.picks):
            restrictions = [
                Restriction() if running in flight.lost else self.lookahead.restriction(running)
                for running, _ in flight.members
            ]
            flight.pending.restrict(restrictions)
            flight.lost |= {running for running, _ in flight.members if running.undecided}

    @contextmanager
    def _discarding(self, flight: Flight | None) -> Iterator[None]:
        """On an error, wait for submitted steps, whose sequences' memory will be reused."""
        try:
            yield
        except Exception:
            if flight:
                flight.lost = {running for running, _ in flight.members}
                with suppress(Exception):  # the first error is the reason
                    if flight.ask:
                        self._restrict(flight)
                        next(flight.pending.tokens())
                    else:
                        flight.pending.outputs()
            raise

    def _follow(self, flight: Flight) -> None:
        """Continue with the tokens of submitted steps once the next ones are submitted."""
        n_steps = self._n_following(flight) if flight.goes_on else 0
        following = self._fly(flight.members, n_steps, flight) if n_steps else self._fly_after(flight)
        with self._discarding(following):
            lost = self._take_picked(self._wait(flight), flight.n_steps)
            if following:
                following.lost |= lost
                self._restrict(following)
        self._compare(flight)
        if following:
            self.on_way.append(following)
            return
        for running, _ in flight.members:  # read sequences again whose recurrent states include wrong tokens
            if running.n_ahead and not running.generation.finish_reason and self._cache.checkpoints is not None:
                self._scheduler.begin_again(running)

    def _fly_after(self, before: Flight) -> Flight | None:
        """Submit steps after pending ones in which some sequences end, without these; None if the others must wait."""
        going = [(running, n_new) for running, n_new in before.members if _is_left_after(running, before)]
        if not 1 < len(going) < len(before.members) or not self._may_submit_after(before):
            return None
        others = set(self._scheduler.running) - self._current(before)
        if others or self._scheduler.may_admit() or self._drafts_itself(going):
            return None
        most = min(self._n_free(before) - 1, 2 * before.n_steps)
        n_steps = self.lookahead.steps(going, before.n_steps, most) if most >= 1 else 0
        if not n_steps:
            return None
        began, spent, n_ahead = time.perf_counter(), self._clock(), before.n_steps
        whole = [running for running, _ in going]
        rows = {running: -1 - row for row, (running, _) in enumerate(before.members)}
        parts = [Part(item, [0], item.n_past + n_ahead, [0], item.generation.adapter_scales) for item in whole]
        batch = batch_of(self._cache, parts)
        batch.tokens[:] = [rows[running] for running in whole]
        ask = self.lookahead.ask([running.generation for running in whole], n_steps, n_ahead)
        for running in whole:
            running.n_ahead = n_ahead + n_steps
        versions = [running.tables.version for running in whole]
        pending = self._runner.submit(batch, ask, after=before.pending)
        self._speculation.passed(n_steps)
        flight = Flight(going, whole, batch, pending, self._follow, ask, versions, behind=True)
        flight.began, flight.spent, flight.kind = began, spent, self._kind(going)
        return flight

    def _compare(self, flight: Flight) -> None:
        """Compare the tokens of landed steps with what the program would have drafted."""
        current = [(running, 1) for running, _ in flight.members if not running.generation.finish_reason]
        seconds = self.lookahead.seconds(len(flight.members))
        if seconds and len(current) == len(flight.members) and self._drafts_itself(current):
            lengths = self.lookahead.lengths(len(current))
            self._speculation.device.took_plain([item for item, _ in current], lengths, flight.n_steps, seconds)

    def _n_following(self, flight: Flight) -> int:
        """Return how many steps to submit behind a flight: none if others wait for admission, or some have left it.

        None either if proposers are asked for drafts in the next step.
        """
        current = [running for running, _ in flight.members if not running.generation.finish_reason]
        if flight.lost or len(current) != len(flight.members) or len(current) != len(self._scheduler.running):
            return 0
        n_free: float = self._n_free(flight) - 1  # steps after the latest one that need not ask for drafts
        if self._drafts_itself([(running, 1) for running in current]):
            n_free = 0 if self._planned(current).n_steps else self._speculation.device.most_plain(current)
        if n_free < 1 or self._scheduler.may_admit():
            return 0
        return self.lookahead.steps(flight.members, flight.n_steps, min(n_free, 2 * flight.n_steps))

    def _n_free(self, flight: Flight) -> int:
        """Return the number of steps, from the flight's last on, after which no proposer is asked."""
        host = self._speculation.host
        n_own = self._n_left_to_program(flight.members, flight.kind, host) if host and flight.kind else 0
        return 1 + n_own if n_own else self._speculation.n_free

    def _wait(self, flight: Flight) -> list[Landed]:
        """Return the picked tokens of each sequence, up to the first token without a finite logit."""
        ahead = next(flight.pending.tokens())
        now = time.perf_counter()
        self.lookahead.took(len(flight.members), flight.n_steps, now - max(flight.began, self._landed))
        self._landed = now
        finite = np.isfinite(ahead.logits[:, :, 0])
        n_good = np.where(finite.all(axis=0), flight.n_steps, finite.argmin(axis=0)).tolist()
        rows = enumerate(zip(flight.members, n_good, strict=True))
        return [Landed(running, ahead, row, n) for row, ((running, _), n) in rows if running not in flight.lost]

    def _take_picked(self, landed: Sequence[Landed], n_steps: int) -> set[Running]:
        """Continue with the picked tokens.

        Return the sequences that ended or changed within these steps: their tokens of later steps are discarded.
        """
        going = [item for item in landed if not item.running.generation.finish_reason]
        for item in going:
            item.running.undecided = item.n_good < n_steps
        for step in range(n_steps):
            tokens = [(item.running, self._picked(item, step)) for item in going if step < item.n_good]
            self._scheduler.take(tokens, self._least_forced)
            going = [item for item in going if step < item.n_good and _goes_on(item.running)]
        return {item.running for item in landed} - {item.running for item in going}

    def _picked(self, landed: Landed, step: int) -> int:
        """Return the token of a computed step."""
        running, ahead, row, _ = landed
        generation = running.generation
        generation.chain.skip(self.lookahead.draws(generation))
        self._scheduler.computed(running, 1)
        running.n_ahead -= 1
        return self.lookahead.picked(generation, ahead, step, row)

    # --- the program drafts, and decides

    def _drafts_itself(self, members: Members) -> bool:
        """Return True if drafts for this batch are left to the program."""
        if not (self._can.drafted and self.lookahead.drafts(members)):
            return False
        if not all(self._speculation.matches_text(running.generation) for running, _ in members):
            return False
        self._prepare_drafts()
        return True

    def _prepare_drafts(self) -> None:
        """Let the program begin to prepare steps with drafts, once."""
        if not self._prepares_drafts:
            self._prepares_drafts = True
            self._runner.prepare_drafts()

    def _planned(self, sequences: Sequence[Running]) -> Plan:
        """Return the plan of a submission with drafts of the program, with blocks held for its steps."""
        plan = self._speculation.device.plan(sequences, self.lookahead.lengths(len(sequences)), self._can.max_steps)
        n_steps = self.lookahead.passes(sequences, plan.n_drafted, plan.n_steps) if plan.n_steps else 0
        return plan._replace(n_steps=n_steps)

    def _draft_ahead(self, members: Members, plan: Plan, before: Flight | None = None) -> Flight:
        """Submit steps with exact picks that verify drafts of the program, optionally behind others of their kind."""
        began, sequences = time.perf_counter(), [running for running, _ in members]
        if before:
            assert before.ask is not None
            ask, tables = before.ask, self._cache.batch_tables([running.tables for running in sequences])
            batch = replace(before.batch, block_tables=tables)
        else:
            ask = replace(self._ask_rows(sequences, plan), texts=self._speculation.device.texts(sequences))
            parts = [running.part(1, running.generation.tokens[-1:] * plan.n_drafted) for running in sequences]
            batch = batch_of(self._cache, parts)
        pending = self._runner.submit(batch, ask, before.pending if before else None)
        flight = Flight(members, sequences, batch, pending, self._take_drafted, ask, plan=plan)
        flight.began, flight.spent, flight.behind = began, self._landed, before is not None
        return flight

    def _drafts_behind(self, flight: Flight) -> Flight | None:
        """Submit steps with drafts behind such steps that have not ended; None if their tokens are to be known first.

        These go on from the text on the device. The host does not know how many random numbers the others take, so
        picks that draw any wait.
        """
        current, plan = flight.whole, flight.plan
        if not (flight.goes_on and self._can.follows) or flight.lost or not self._is_alone(current):
            return None
        if not all(running.generation.chain.certain for running in current):
            return None
        if any(running.generation.n_left <= plan.n_steps * (1 + plan.n_drafted) for running in current):
            return None
        if not self._speculation.device.goes_on(current, plan, self._can.max_steps):
            return None
        if self.lookahead.passes(current, plan.n_drafted, 2 * plan.n_steps) < 2 * plan.n_steps:
            return None
        return self._draft_ahead(flight.members, plan, flight)

    def _is_alone(self, sequences: Sequence[Running]) -> bool:
        """Return True if these sequences are all that run, none has ended, and no other waits for admission."""
        if any(running.generation.finish_reason for running in sequences):
            return False
        return len(sequences) == len(self._scheduler.running) and not self._scheduler.may_admit()

    def _ask_rows(self, sequences: Sequence[Running], plan: Plan, follows: bool = False) -> Ask:
        """Return the ``Ask`` of steps that verify drafts, with a random number for each row.

        ``follows``: of a single step behind one of the plan's two, with the numbers of both.
        """
        n_seqs, n_rows = len(sequences), 1 + plan.n_drafted
        ask = self.lookahead.ask([running.generation for running in sequences], plan.n_steps * n_rows)
        if follows:
            return replace(ask, numbers=ask.numbers.T.reshape(1, -1), n_drafted=plan.n_drafted)
        numbers = ask.numbers.T.reshape(n_seqs, plan.n_steps, n_rows).swapaxes(0, 1).reshape(plan.n_steps, -1)
        return replace(ask, numbers=numbers, n_drafted=plan.n_drafted)

    def _take_drafted(self, flight: Flight) -> None:
        """Continue with the tokens of steps with drafts, once the next ones are submitted."""
        following = self._drafts_behind(flight)
        with self._discarding(following):
            lost = self._take_steps(flight)
        if following:
            following.lost |= lost
            following.spent = self._landed
            self.on_way.append(following)

    def _take_steps(self, flight: Flight) -> set[Running]:
        """Continue with the tokens of steps with drafts; return the sequences that ended or changed within them."""
        plan, ahead = flight.plan, next(flight.pending.tokens())
        assert ahead.n_taken is not None
        taken = dict(zip(flight.whole, ahead.n_taken.T.tolist(), strict=True))
        flight.lost |= {running for running in taken if running.generation.finish_reason}
        going = [(index, running) for index, running in enumerate(flight.whole) if running not in flight.lost]
        for step in range(plan.n_steps):
            for _, running in going:
                running.generation.timings.drafted(plan.n_drafted, taken[running][step] - 1)
                running.generation.timings.drafts_exact = self._speculation.is_exact
            first = 1 + plan.n_drafted
            going = [
                (index, running)
                for index, running in going
                if self._take_rows(running, ahead, step, range(index * first, index * first + taken[running][step]))
            ]
        self._landed = time.perf_counter()
        ended = flight.lost | {running for running in taken if running.generation.finish_reason}
        current = {running: numbers for running, numbers in taken.items() if running not in ended}
        lengths = self.lookahead.lengths(len(taken))
        self._speculation.device.took(current, len(taken), lengths, plan, self._landed - flight.spent)
        return set(taken) - {running for _, running in going}

    def _n_given(self, members: Members, drafts: Mapping[Running, Draft]) -> int:
        """Return how many tokens of each sequence the program verifies for the host; 0: the host verifies them.

        Drafts are padded to a number that the program offers.
        """
        if not self.lookahead.verifies(members):
            return 0
        longest = max(len(draft.tokens) for draft in drafts.values())
        n_drafted = next((n for n in self.lookahead.lengths(len(members)) if n >= longest), 0)
        if not n_drafted or not self.lookahead.passes([running for running, _ in members], n_drafted, 1):
            return 0
        self._prepare_drafts()
        return n_drafted

    def _verify_given(self, members: Members, drafts: Mapping[Running, Draft], n_drafted: int) -> Flight:
        """Submit a step with exact picks that verifies drafts of the host, so that it needs no logits."""
        tokens = [list(drafts[running].tokens) if running in drafts else [] for running, _ in members]
        flight = self._verify_rows(members, tokens, n_drafted, self._take_given)
        flight.drafts = drafts
        return flight

    def _verify_rows(
        self,
        members: Members,
        tokens: Sequence[Sequence[int]],
        n_drafted: int,
        land: Callable[[Flight], None],
        passed: Sequence[PassedTokens] = (),
        before: Flight | None = None,
    ) -> Flight:
        """Submit a step with exact picks that verifies ``n_drafted`` rows of each sequence behind its last token.

        Drafts are padded; those that pending steps pick are ``passed``. ``before``: a step of the kind that it follows.
        """
        began, spent, sequences = time.perf_counter(), self._clock(), [running for running, _ in members]
        ask, parts = self._ask_rows(sequences, Plan(n_drafted, 2 if before else 1), bool(before)), []
        if any(pick.restricted for pick in ask.picks):
            tokens, ask = restricted(ask, [running.generation for running in sequences], tokens)
        for running, drafted in zip(sequences, tokens, strict=True):
            padding = [running.generation.tokens[-1]] * (n_drafted - len(drafted))
            parts.append(running.part(1, [*drafted, *padding]))
        batch = batch_of(self._cache, parts)
        batch.passed_tokens = passed
        if passed and (layer := self._speculation.next_tokens):
            batch.bases = layer.bases(sequences)
        graph = self._listening(members, batch) or MAIN
        pending = self._runner.submit(batch, ask, before.pending if before else None, graph)
        flight = Flight(members, sequences, batch, pending, land, ask, behind=before is not None)
        flight.hears = graph != MAIN
        flight.began, flight.spent = began, spent
        return flight

    def _round(self, members: Members, kind: Kind | None) -> Flight | None:
        """Submit steps of a layer that drafts, and behind them the one that verifies its tokens; None if it cannot.

        The tokens stay on the device, so the host waits once.
        """
        speculation, sequences = self._speculation, [running for running, _ in members]
        drafter, lengths = speculation.drafter(members), self.lookahead.lengths(len(members))
        if drafter is None or not self.lookahead.drafts(members) or not all(map(drafter.knows, sequences)):
            return None
        if not self._affords_round(kind, lengths):
            return None
        n = speculation.round_length(sequences, kind, lengths)
        n_drafted = next((length for length in lengths if length >= n), 0)
        if not n or speculation.looks_up(members) or not drafter.holds(sequences, n):
            return None
        if not self.lookahead.passes(sequences, n_drafted, 1):
            return None
        return self._submit_round(drafter, members, kind, n, n_drafted)

    def _affords_round(self, kind: Kind | None, lengths: Sequence[int]) -> bool:
        """Return True if there is credit for a round, and it could pay."""
        host = self._speculation.host
        if host is None:
            return True
        if kind is None:
            return False
        if host.has_pace(kind) and self._speculation.rounds.promises(kind, host.pace(kind)):
            host.lend(kind)
        if host.n_free(kind):
            return False
        if not self._speculation.rounds.pays(kind, lengths, host.pace(kind)):
            host.give_up(kind)
        return not host.n_free(kind)

    def _submit_round(
        self,
        drafter: Drafter,
        members: Members,
        kind: Kind | None,
        n: int,
        n_drafted: int,
        before: Flight | None = None,
    ) -> Flight | None:
        """Submit a round of ``n`` tokens, padded to ``n_drafted``; None after an error of the drafter."""
        began, speculation, sequences = time.perf_counter(), self._speculation, [running for running, _ in members]
        try:
            if before and isinstance(drafter, NextTokens):
                drafts = drafter.submit_after(sequences, before.pending, n, n_drafted)
            else:
                drafts = drafter.submit(sequences, n)
        except Exception as error:
            speculation.drop_drafter(drafter, sequences, error)
            return None
        speculation.passed(1)
        passed = passed_to(drafts, len(members), n_drafted, n)
        flight = self._verify_rows(members, [()] * len(members), n_drafted, self._take_round, passed, before)
        flight.began, flight.kind, flight.n_round, flight.asks = began, kind, n, True
        return flight

    def _round_behind(self, flight: Flight) -> Flight | None:
        """Submit a round behind one that has not ended; None if others wait, or this one may be the last."""
        speculation, sequences = self._speculation, list(flight.whole)
        assert flight.ask is not None
        n_drafted, lengths = flight.ask.n_drafted, self.lookahead.lengths(len(sequences))
        if not (flight.goes_on and flight.hears and self._can.follows):
            return None
        if flight.lost or not self._is_alone(sequences):
            return None
        if not self._affords_round(flight.kind, lengths):
            return None
        layer = speculation.lone_layer(flight.members)
        if layer is None or not layer.holds_after(sequences, n_drafted):
            return None
        if any(running.generation.n_left <= 1 + n_drafted for running in sequences):
            return None
        n = speculation.round_length(sequences, flight.kind, lengths)
        if n != flight.n_round or self.lookahead.passes(sequences, n_drafted, 2) < 2:
            return None
        if speculation.looks_up(flight.members):
            return None
        return self._submit_round(layer, flight.members, flight.kind, n, n_drafted, flight)

    def _take_round(self, flight: Flight) -> None:
        """Submit the next round, and continue with the tokens of this one.

        The batch gets the positions of its rows and the tokens that are known now: those that were right.
        """
        following = self._round_behind(flight)
        with self._discarding(following):
            lost = self._take_tokens_of_round(flight, next(flight.pending.tokens()))
        if following is None:
            return
        assert self._speculation.next_tokens is not None
        self._speculation.next_tokens.went_on(flight.whole, lost)
        flight.hears = False
        following.lost |= lost
        self.on_way.append(following)

    def _take_tokens_of_round(self, flight: Flight, ahead: Ahead) -> set[Running]:
        """Continue with the tokens of a round; return the sequences that ended or changed."""
        n, rounds = flight.n_round, self._speculation.rounds
        tokens, positions = (
            array.reshape(len(flight.whole), -1) for array in (flight.batch.tokens, flight.batch.positions)
        )
        picked, lost = ahead.picked[0].reshape(tokens.shape), set(flight.whole)
        assert ahead.n_taken is not None
        drafter = self._speculation.drafter(flight.members)
        for index, running in enumerate(flight.whole):
            tokens[index, 0] = running.generation.tokens[-1]
            positions[index] = running.n_past + np.arange(tokens.shape[1])
            if drafter:
                drafter.took(running, picked[index, : min(int(ahead.n_taken[0, index]) - 1, n - 1)].tolist())
        for index, (running, n_taken, n_accepted) in self._take_verified(flight, ahead):
            tokens[index, 1:n_taken] = picked[index, : n_taken - 1]
            tokens[index, n_taken:] = UNKNOWN
            running.generation.timings.drafted(n, min(max(0, n_accepted), n))
            running.generation.timings.drafts_exact = self._speculation.is_exact
            rounds.judged(flight.kind, min(n_taken - 1, n), n)
            if n_accepted == n_taken - 1 and _goes_on(running):
                lost.discard(running)
        return lost

    def _take_given(self, flight: Flight) -> None:
        """Continue with the tokens of a step that verified drafts of the host."""
        for _, (running, _, n_accepted) in self._take_verified(flight, next(flight.pending.tokens())):
            if (draft := flight.drafts.get(running)) and n_accepted > 0:
                following = running.generation.generated[-1 - n_accepted :]
                draft.n_accepted = min(n_accepted, _n_equal(draft.tokens, following))

    def _take_verified(self, flight: Flight, ahead: Ahead) -> Iterator[tuple[int, tuple[Running, int, int]]]:
        """Continue with the tokens of a step that verified drafts, except of sequences that were lost or have ended.

        Yield the index of each sequence, and it with the number of tokens that the program picked for it and that of
        accepted drafted tokens.
        """
        assert flight.ask is not None
        assert ahead.n_taken is not None
        n_rows = 1 + flight.ask.n_drafted
        for index, (running, n_taken) in enumerate(zip(flight.whole, ahead.n_taken[0].tolist(), strict=True)):
            if running in flight.lost or running.generation.finish_reason:
                continue
            n_before = len(running.generation.generated)
            drafted = flight.batch.tokens[index * n_rows + 1 :][: n_rows - 1]
            self._take_rows(running, ahead, 0, range(index * n_rows, index * n_rows + n_taken), drafted)
            yield index, (running, n_taken, len(running.generation.generated) - n_before - 1)

    def _take_rows(
        self, running: Running, ahead: Ahead, step: int, rows: range, drafted: Sequence[int] | NDArray[np.int32] = ()
    ) -> bool:
        """Continue with the tokens of rows of a step. Return True if the next step was computed for them.

        ``drafted``: tokens of the rows behind the first, which the host knew. Rows of those that a mask forces, and
        that the sequence has appended by itself, are skipped.
        """
        generation, tables, begin = running.generation, running.tables, rows.start
        while rows:
            row, rows = rows[0], rows[1:]
            if not np.isfinite(ahead.logits[step, row, 0]):
                running.undecided = True
                return False
            generation.chain.skip(self.lookahead.draws(generation))
            self._scheduler.computed(running, 1)
            self._scheduler.take([(running, self.lookahead.picked(generation, ahead, step, row))], self._least_forced)
            if running.pending > 1 and running.tables is tables and not generation.finish_reason:
                coming = generation.tokens[running.n_past : -1]
                n_computed = _n_equal(coming, drafted[row - begin :])
                self._scheduler.computed(running, n_computed)
                rows = rows[n_computed:]
            if not _goes_on(running) or (generation.chain.masking and not generation.chain.was_expected):
                return False
        return True


def _ends_with_next(running: Running) -> bool:
    """Return True if a sequence ends with its next token, whatever that is, or its context is full."""
    generation = running.generation
    return generation.n_left <= 1 or len(generation.tokens) >= generation.n_ctx


def _is_left_after(running: Running, flight: Flight) -> bool:
    """Return True if a member of a flight is not known to end with its steps."""
    generation = running.generation
    is_current = running not in flight.lost and not generation.finish_reason
    return is_current and generation.n_left > flight.n_steps and running.n_past + flight.n_steps < generation.n_ctx


def _with_tokens(flight: Flight, picked: Mapping[Running, int]) -> Batch:
    """Return the batch of a flight with the tokens that the step before it picked, now that they are known."""
    tokens = flight.batch.tokens.copy()
    for (running, _), start in zip(flight.members, flight.batch.seq_starts, strict=False):
        if tokens[start] < 0:
            tokens[start] = picked.get(running, 0)
    return replace(flight.batch, tokens=tokens)


def _is_plain(part: Part) -> bool:
    """Return True if a part is the last token of a text, and nothing else."""
    is_single = len(part.tokens) == len(part.output_rows) == 1
    return is_single and not (part.adapter_scales or part.media or part.place.memory)


def _n_tokens(flight: Flight) -> int:
    """Return the number of generated tokens of a flight's members."""
    return sum(len(running.generation.generated) for running, _ in flight.members)


def _n_equal(tokens: Sequence[int], others: Iterable[int]) -> int:
    """Return the number of first tokens that are equal."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(tokens, others, strict=False)))


def _goes_on(running: Running) -> bool:
    """Return True if only its last token remains to be computed."""
    return running.pending == 1 and not running.generation.finish_reason
