"""Decide who drafts the next tokens of a batch: the program, a layer in a round, proposers of the host, or nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pumice.architecture import MAIN
from pumice.engine.device_drafts import DraftPlan
from pumice.engine.drafts import Draft, may_draft
from pumice.engine.generation import Running
from pumice.engine.host_drafts import MEASURED, HostDrafts, Kind
from pumice.engine.kv_cache import KVCache
from pumice.engine.lookahead import Lookahead
from pumice.engine.runner import Runner
from pumice.engine.schedule import Members
from pumice.engine.scheduler import Scheduler
from pumice.engine.speculation import Speculation


class Drafting:
    """Chooses between the drafts of ``speculation`` and the steps that a program computes by itself."""

    def __init__(
        self, speculation: Speculation, lookahead: Lookahead, runner: Runner, scheduler: Scheduler, cache: KVCache
    ) -> None:
        self.speculation = speculation
        self._lookahead = lookahead
        self._runner = runner
        self._scheduler = scheduler
        self._cache = cache
        self._is_prepared = False

    def prepare(self) -> None:
        """Let the program begin to prepare steps with drafts, once."""
        if not self._is_prepared:
            self._is_prepared = True
            self._runner.prepare_drafts()

    # --- drafts of the program

    def is_left_to_program(self, members: Members) -> bool:
        """Return True if drafts for this batch are left to the program."""
        if not (self._lookahead.can.drafted and self._lookahead.drafts(members)):
            return False
        if not all(self.speculation.matches_text(running.generation) for running, _ in members):
            return False
        self.prepare()
        return True

    def plan(self, sequences: Sequence[Running]) -> DraftPlan:
        """Return the plan of a submission with drafts of the program, with blocks held for its steps."""
        lookahead = self._lookahead
        plan = self.speculation.device.plan(sequences, lookahead.lengths(len(sequences)), lookahead.can.max_steps)
        n_steps = lookahead.passes(sequences, plan.n_drafted, plan.n_steps) if plan.n_steps else 0
        return plan._replace(n_steps=n_steps)

    # --- drafts of the host, beside steps that the program computes by itself

    def kind(self, members: Members) -> Kind | None:
        """Return the kind of a batch whose steps without drafts have a pace of their own.

        None if the program computes no steps by itself, or nobody would draft for it.
        """
        if self.speculation.host is None or not all(may_draft(running, n_new) for running, n_new in members):
            return None
        names = self.speculation.chosen(members)
        if not names:
            return None
        sequences = [running for running, _ in members]
        decides = self._lookahead.decides(sequences)
        return len(members), names, decides and self._lookahead.restricts([item.generation for item in sequences])

    def of_host(self, members: Members, kind: Kind | None) -> tuple[Mapping[Running, Draft], int]:
        """Return the drafts of proposers, and the number of steps that need not ask them again."""
        speculation, pace = self.speculation, None
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

    def n_free(self, members: Members, kind: Kind | None) -> int:
        """Return the number of steps, from the latest submitted one on, after which no proposer is asked."""
        host = self.speculation.host
        n_own = self._n_left_to_program(members, kind, host) if host and kind else 0
        return 1 + n_own if n_own else self.speculation.n_free

    def _n_left_to_program(self, members: Members, kind: Kind, host: HostDrafts) -> int:
        """Return the number of next steps without drafts of the host; trials wait until their steps are prepared."""
        if self._lookahead.verifies(members):
            self.prepare()
            if self._runner.prepares_drafts:
                return MEASURED
        return host.n_free(kind)

    def _most_drafted(self, members: Members) -> int | None:
        """Return the maximum tokens of a draft: with masks those that the program verifies, since the host takes long.

        None: as many as there is room for.
        """
        if not (
            self._lookahead.verifies(members) and self._lookahead.restricts([item.generation for item, _ in members])
        ):
            return None
        return self._lookahead.lengths(len(members))[-1]

    # --- drafts of a layer

    def affords_round(self, kind: Kind | None, lengths: Sequence[int]) -> bool:
        """Return True if there is credit for a round, and it could pay."""
        host, rounds = self.speculation.host, self.speculation.rounds
        if host is None:
            return True
        if kind is None:
            return False
        if host.has_pace(kind) and rounds.promises(kind, host.pace(kind)):
            host.lend(kind)
        if host.n_free(kind):
            return False
        if not rounds.pays(kind, lengths, host.pace(kind)):
            host.give_up(kind)
        return not host.n_free(kind)

    def missed(self, members: Members, kind: Kind | None) -> Members:
        """Return the members with the tokens whose hidden states a layer that drafts missed; none if it missed none.

        A program that picks tokens gives none. The layer may begin at any block, so the tokens of the latest block are
        computed again. Keys outside of attention windows may be gone, and recurrent states do not go back.
        """
        speculation, limits = self.speculation, self._scheduler.limits
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

    def waits_for_layer(self, members: Members) -> bool:
        """Return True if a layer that drafts is to hear a step whose tokens the program could pick."""
        return self.speculation.next_tokens is not None and self.speculation.hears(members)
