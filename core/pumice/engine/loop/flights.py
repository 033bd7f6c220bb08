"""Submitted steps of generations: the engine keeps several in flight, and continues with the tokens of the first.

The next tokens are chosen by the samplers from a step's logits, or picked by the program; exact picks are followed by
further steps before the host has read them. Drafts are rows of a step, which the host or the program verifies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from pumice.architecture import MAIN, STREAM
from pumice.backend.step import Batch, draft_of_slot
from pumice.engine.drafts.drafter import Draft, may_draft
from pumice.engine.drafts.speculation import Round
from pumice.engine.loop.flight import Flight, StepContext, discarding
from pumice.engine.requests.batches import Part, batch_after, batch_of
from pumice.engine.requests.generation import Generation, Members
from pumice.graph.media import ROWS

FIRST_STEPS = 2
"""Steps of the first of several flights behind each other; each has at most twice as many steps as the one before.

A program that records steps takes longer for many of them than a device for a few: recording 16 steps of 16 sequences
of llama-1b took 24 to 45 ms on an H100's machine, in which its tokens waited, and computing them 16.
"""

WAITING = 8
"""Steps without drafts that are submitted while a program prepares those that verify drafts."""


class Flights:
    """Submits steps, and processes their results in order."""

    def __init__(self, context: StepContext) -> None:
        self.on_way: deque[Flight] = deque()
        self._context = context
        self._runner, self._lookahead, self._scheduler = context.runner, context.lookahead, context.scheduler
        self._cache, self._speculation, self._can = context.cache, context.speculation, context.lookahead.can
        self._last: tuple[list[int], Batch] | None = None  # the latest batch of single tokens, with table versions

    def choose(self) -> Members:
        """Return the members of the next step, or an empty list if enough steps are pending.

        If the program takes several steps at once, the sequences are divided among them.
        """
        if len(self.on_way) >= self._can.n_in_flight:
            return []
        if self._can.n_in_flight == 1:
            return self._scheduler.choose()
        busy = [running for flight in self.on_way for running, _ in flight.members]
        n_waiting = self._scheduler.waiting.n_ready
        n_all = min(len(self._scheduler.running) + n_waiting, self._scheduler.limits.n_seqs)
        return self._scheduler.choose(busy, -(-n_all // self._can.n_in_flight))

    def begin(self, members: Members) -> Flight:
        """Submit a step, or several consecutive ones if the program may compute them, and return the flight."""
        flight = self._begin(members)
        self.on_way.append(flight)
        return flight

    def land(self, flight: Flight, goes_on: bool = True) -> None:
        """Wait for a flight, and continue with its tokens.

        Args:
            flight: the oldest flight.
            goes_on: whether another flight may be submitted behind it before it ends.
        """
        self.on_way.remove(flight)
        following = self._following(flight) if goes_on else None
        with discarding(following):
            flight.take(following)
        if following:
            self.on_way.append(following)
        if flight.hears:
            self._speculation.landed(flight.batch, flight.members, flight.pending.outputs()[STREAM])
        self._speculation.took(flight.drafts)

    # --- who drafts the next tokens, and who chooses them

    def _begin(self, members: Members) -> Flight:
        speculation = self._speculation
        if self._can.n_in_flight > 1:
            return self._sampled(members, {}, hears=False)
        waits = self._waits_for_program(members, speculation.n_free(members))
        if not waits and (missed := self._missed(members)):
            speculation.passed(1)
            return self._sampled(missed, {}, hears=True)
        drafts: Mapping[Generation, Draft] = {}
        if waits:
            speculation.passed(1)
        else:
            planned = self._drafts(members)
            if not isinstance(planned, Round):
                drafts = planned
            elif flight := self._round(members, planned):
                return flight
        if drafts and (verified := self._verified(members, drafts)):
            return verified
        n_free = WAITING if waits else speculation.n_free(members)
        waits_for_layer = n_free == 1 and speculation.hears(members)
        if not drafts and not waits_for_layer and self._can.max_steps:
            is_first = self._can.registers and not any(running.memory for running, _ in members)
            if picked := self._picked(members, min(n_free, FIRST_STEPS) if is_first else n_free):
                return picked
        return self._sampled(members, drafts, hears=bool(drafts) or not self._can.max_steps or n_free == 1)

    def _drafts(self, members: Members) -> Mapping[Generation, Draft] | Round:
        """Return the drafts of proposers for a step, or a round.

        With masks, drafts are those that the program verifies at most, since the host takes long.
        """
        speculation, limits = self._speculation, self._scheduler.limits
        if not self._lookahead.verifies(members):
            return speculation.draft(members, self._cache, limits)
        lengths = self._lookahead.lengths(len(members))
        if self._lookahead.restricts([running for running, _ in members]):
            return speculation.draft(members, self._cache, limits, most=lengths[-1])
        drafter = speculation.drafter(members, self._runner)
        return speculation.draft(members, self._cache, limits, drafter=drafter, rounds=lengths)

    def _missed(self, members: Members) -> Members:
        """Return the members with the tokens whose hidden states a layer that drafts missed; none if it missed none.

        A program that picks tokens gives none. The layer may begin at any block, so the tokens of the latest block are
        computed again. Keys outside of attention windows may be gone, and recurrent states do not go back.
        """
        limits = self._scheduler.limits
        if self._speculation.layer is None or self._cache.checkpoints is not None:
            return []
        if self._runner.model.listening == MAIN or set(limits.n_blocks) != {0}:
            return []
        if not all(may_draft(running, n_new) for running, n_new in members):
            return []
        missing = self._speculation.missing(members)
        if not missing or limits.n_batch < len(members) + limits.block_size:
            return []
        for running in missing[: (limits.n_batch - len(members)) // limits.block_size]:
            running.n_again = running.n_past % limits.block_size
            running.n_past -= running.n_again
        return [(running, running.pending) for running, _ in members]

    def _waits_for_program(self, members: Members, n_free: int) -> bool:
        """Return True while the program prepares the steps that would verify drafts of this batch.

        ``n_free``: the steps from the present one on for which no draft is made.
        """
        if n_free > 1 or self._speculation.choice.is_fixed or not self._lookahead.verifies(members):
            return False
        return self._runner.prepare_drafts()

    def _listening(self, members: Members, batch: Batch) -> str | None:
        """Return the graph that gives the hidden states of a step, if a layer that drafts wants them."""
        if self._speculation.layer is None:
            return None
        graph = self._runner.model.listening
        is_wanted = graph == MAIN or (ROWS not in batch.inputs and self._speculation.hears(members))
        return graph if is_wanted else None

    # --- submission

    def _sampled(self, members: Members, drafts: Mapping[Generation, Draft], hears: bool) -> Flight:
        """Submit a step whose next tokens the host samples, with drafts that it verifies.

        ``hears``: whether a layer that drafts may want its hidden states.
        """
        drafted = {running: draft.tokens for running, draft in drafts.items()}
        rows = [(running, n_new + len(drafted[running])) for running, n_new in members if running in drafted]
        with ExitStack() as stack:
            if rows:
                stack.enter_context(self._context.states.taking_back(rows))
            batch = self._batch([running.part(n_new, drafted.get(running, ())) for running, n_new in members])
            graph = self._listening(members, batch) if hears and not batch.taps else None
            pending = self._runner.submit(batch, graph=graph or MAIN)
            flight = Flight(self._context, members, _whole(members), batch, pending, drafts=drafts)
            flight.hears, flight.restoring = graph is not None, stack.pop_all()
            return flight

    def _picked(self, members: Members, most: float, before: Flight | None = None) -> Flight | None:
        """Submit at most ``most`` steps whose tokens the program picks: one of any batch, or several of single tokens.

        A pick that is not exact gives candidates, from which the chain of its sequence chooses the token of a single
        step. None if the host needs all logits, or blocks are missing. ``before``: the steps that they follow.
        """
        lookahead, whole = self._lookahead, _whole(members)
        if any(running.layers for running, _ in members):
            return None
        can_pick = lookahead.decides if before else lookahead.picks
        if any(map(_needs_media_graph, whole)) or not can_pick(whole):
            return None
        n_steps = lookahead.steps(members, most if len(whole) == len(members) else 1)
        if not n_steps:
            return None
        batch = self._batch([running.part(n_new) for running, n_new in members])
        if whole and not self._runner.picks(batch):
            return None
        ask = None
        if whole:
            ask = lookahead.ask(whole, n_steps, before.ask if before and whole == before.whole else None)
            is_restricted = not before and lookahead.restricts(whole)
            # Restrictions may arrive later, but a recurrent state cannot go back behind one that exceeds the program.
            if is_restricted and not (self._can.registers and self._cache.checkpoints is None):
                restrictions = [lookahead.restriction(running) for running in whole]
                if any(running.undecided for running in whole):
                    return None
                ask = replace(ask, restrictions=restrictions)
        pending = self._runner.submit(batch, ask)
        self._speculation.passed(n_steps if before else n_steps - 1)
        flight = Flight(self._context, members, whole, batch, pending, ask)
        if not before:
            with discarding(flight):
                flight.restrict()
        return flight

    def _verified(self, members: Members, drafts: Mapping[Generation, Draft]) -> Flight | None:
        """Submit a step that verifies drafts of proposers, padded to a number of tokens that the program offers.

        None if the host has to verify them.
        """
        lookahead, sequences = self._lookahead, [running for running, _ in members]
        if not lookahead.verifies(members):
            return None
        longest = max(len(draft.tokens) for draft in drafts.values())
        n_drafted = next((n for n in lookahead.lengths(len(members)) if n >= longest), 0)
        if not n_drafted or not lookahead.has_room(sequences, n_drafted, 1):
            return None
        self._runner.prepare_drafts()
        tokens = [list(drafts[running].tokens) if running in drafts else [] for running in sequences]
        flight = self._rows(members, tokens, n_drafted)
        flight.drafts = drafts
        return flight

    def _round(self, members: Members, planned: Round, before: Flight | None = None) -> Flight | None:
        """Submit the steps of a drafter, and the one that verifies their tokens, so that the host waits once.

        None if blocks are missing, or after an error of the drafter. ``before``: the round that it follows.
        """
        sequences, (drafter, n) = [running for running, _ in members], planned
        n_drafted = next(length for length in self._lookahead.lengths(len(members)) if length >= n)
        if not self._lookahead.has_room(sequences, n_drafted, 2 if before else 1):
            return None
        try:
            if before:
                drafter.submit_after(sequences, n, n_drafted)
            else:
                drafter.submit(sequences, n)
        except Exception as error:
            self._speculation.drop(drafter, sequences, "submit", error)
            return None
        self._speculation.passed(1 if before else 0)
        flight = self._rows(members, [[draft_of_slot(i) for i in range(n)]] * len(members), n_drafted, before)
        flight.round = planned
        return flight

    def _rows(
        self, members: Members, tokens: Sequence[Sequence[int]], n_drafted: int, before: Flight | None = None
    ) -> Flight:
        """Submit a step with ``n_drafted`` rows of each sequence behind its last token, which the program verifies.

        Drafts are padded, and may be those of slots. ``before``: a step of the kind that it follows.
        """
        sequences, parts = [running for running, _ in members], []
        tokens, ask = self._lookahead.ask_rows(sequences, tokens, n_drafted, bool(before))
        for running, drafted in zip(sequences, tokens, strict=True):
            padding = [running.tokens[-1]] * (n_drafted - len(drafted))
            parts.append(running.part(1, [*drafted, *padding]))
        batch = batch_of(self._cache, parts)
        graph = self._listening(members, batch) or MAIN
        if batch.takes_from_slots:
            graph = self._runner.model.listening or MAIN  # steps behind each other are of one graph
        if before:
            batch.positions, batch.relative = np.tile(np.arange(1 + n_drafted, dtype=np.int32), len(sequences)), True
        pending = self._runner.submit(batch, ask, graph)
        return Flight(self._context, members, sequences, batch, pending, ask, hears=graph != MAIN)

    def _batch(self, parts: Sequence[Part]) -> Batch:
        """Return the batch of a step; it shares arrays with the latest one if tokens and positions alone differ."""
        is_plain = all(map(_is_plain, parts))
        versions = [number for part in parts for number in (part.place.slot, part.place.tables.version)]
        if is_plain and self._last is not None and self._last[0] == versions:
            batch = batch_after(self._last[1], parts)
        else:
            batch = batch_of(self._cache, parts)
        self._last = (versions, batch) if is_plain else None
        return batch

    # --- steps behind one that has not ended

    def _following(self, flight: Flight) -> Flight | None:
        """Submit the steps behind a flight whose tokens are known, or come from slots; None if there are none."""
        if not self._can.registers or flight.lost:
            return None
        if flight.n_drafted:
            return self._following_round(flight, flight.round) if flight.round and flight.hears else None
        if flight.whole and flight.ask is None:
            return None
        return self._following_picks(flight)

    def _following_round(self, flight: Flight, planned: Round) -> Flight | None:
        """Submit a round behind another one, whose hidden states stay on the device; None if others wait."""
        sequences, drafter = list(flight.whole), planned.drafter
        if not self._is_alone(sequences):
            return None
        if any(running.n_left <= 1 + flight.n_drafted for running in sequences):
            return None
        if not drafter.holds_after(sequences, flight.n_drafted) or not drafter.submits(self._runner):
            return None
        if not self._speculation.follows(drafter, sequences, self._lookahead.lengths(len(sequences)), planned.n):
            return None
        return self._round(flight.members, planned, flight)

    def _following_picks(self, flight: Flight) -> Flight | None:
        """Submit the steps behind those whose tokens the program picks.

        If the same sequences go on with a token each, a program keeps all that their picks depend on. Otherwise the
        scheduler chooses, among others prompts. A recurrent state cannot insert forced tokens before others.
        """
        scheduler, lookahead = self._scheduler, self._lookahead
        is_recurrent = self._cache.checkpoints is not None
        if any(running.memory for running in flight.whole) or not lookahead.decides(flight.whole):
            return None
        if is_recurrent and lookahead.restricts(flight.whole):
            return None
        most = 1
        if not any(running.reads_on for running in scheduler.running):
            n_free = self._speculation.n_free(flight.members)
            n_free = WAITING if self._waits_for_program(flight.members, n_free) else n_free
            most = min(n_free - 1, 2 * flight.n_steps)
        if most < 1:
            return None
        ending = [running for running in scheduler.running if _ends(running)]
        is_single = len(flight.whole) == len(flight.batch.tokens)
        if is_single and not ending and self._is_alone(flight.whole):
            return self._picked([(running, 1) for running in flight.whole], most, flight)
        members = self._chosen(flight, ending) if not is_recurrent else []
        return self._picked(members, most, flight) if members else None

    def _chosen(self, flight: Flight, ending: Sequence[Generation]) -> Members:
        """Return the members that the scheduler chooses beside sequences that end with the present step.

        Empty if it cannot take their tokens, since picks depend on earlier ones. A step that reads prompts and could
        take more tokens waits: sequences may arrive until the present one ends.
        """
        scheduler = self._scheduler
        if not self._runner.has_registers or self._speculation.layer is not None:
            return []
        if flight.ask and any(pick.restricted or pick.last_n for pick in flight.ask.picks):
            return []
        if any(item.media or item.layers or item.memory for item in scheduler.running):
            return []
        members = scheduler.choose(ending)
        taken = dict(members)
        if any(running.media or running.memory for running in taken):
            return []
        picks = [running.chain.pick for running in _whole(members)]
        if any(pick is None or pick.restricted for pick in picks):
            return []
        waits = any(item.pending > taken.get(item, 0) for item in scheduler.running if item not in ending)
        is_full = waits or sum(taken.values()) == scheduler.limits.n_batch
        return members if is_full or not any(running.reads_on for running in taken) else []

    def _is_alone(self, sequences: Sequence[Generation]) -> bool:
        """Return True if these sequences are all that run, none has ended, and no other waits for admission."""
        if any(running.finish_reason for running in sequences):
            return False
        return len(sequences) == len(self._scheduler.running) and not self._scheduler.may_admit()


def _needs_media_graph(running: Generation) -> bool:
    """Return True if the graph for media computes the last token: it is of media, or places differ from positions."""
    return running.tokens[-1] < 0 or (running.media is not None and running.media.places is not None)


def _whole(members: Members) -> list[Generation]:
    """Return the members whose next token a step yields."""
    return [running for running, n_new in members if running.pending == n_new]


def _is_plain(part: Part) -> bool:
    """Return True if a part is the last token of a text, and nothing else."""
    is_single = len(part.tokens) == len(part.output_rows) == 1
    return is_single and not (part.adapters or part.media or part.place.memory or part.taps)


def _ends(running: Generation) -> bool:
    """Return True if a sequence ends with the tokens that pending steps pick, whatever they are."""
    n = running.n_coming
    return bool(running.finish_reason) or running.n_left <= n or len(running.tokens) + n > running.n_ctx
