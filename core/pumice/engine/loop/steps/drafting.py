"""Decide who drafts the next tokens of a batch: a layer in a round, proposers of the host, or nobody."""

from __future__ import annotations

from collections.abc import Mapping

from pumice.architecture import MAIN
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.drafts.drafts import Draft, may_draft
from pumice.engine.drafts.speculation import Speculation
from pumice.engine.loop.lookahead import Lookahead
from pumice.engine.loop.scheduler import Scheduler
from pumice.engine.placement.runner import Runner
from pumice.engine.requests.generation import Members, Running

WAITING = 8
"""Steps without drafts that are submitted while a program prepares those that verify drafts."""


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

    # --- drafts of the host

    def of_host(self, members: Members) -> tuple[Mapping[Running, Draft], int]:
        """Return the drafts of proposers, and the number of steps that need not ask them again."""
        if self.waits_for_program(members):
            self.speculation.passed(1)
            return {}, WAITING
        drafts = self.speculation.draft(members, self._cache, self._scheduler.limits, self._most_drafted(members))
        return drafts, self.speculation.n_free(members)

    def n_free(self, members: Members) -> int:
        """Return the number of steps, from the latest submitted one on, after which no proposer is asked."""
        return 1 + WAITING if self.waits_for_program(members) else self.speculation.n_free(members)

    def waits_for_program(self, members: Members) -> bool:
        """Return True while the program prepares the steps that would verify drafts of this batch."""
        if self.speculation.choice.is_fixed or not self._lookahead.verifies(members):
            return False
        if self.speculation.n_free(members) > 1:
            return False
        self.prepare()
        return self._runner.prepares_drafts

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

    def missed(self, members: Members) -> Members:
        """Return the members with the tokens whose hidden states a layer that drafts missed; none if it missed none.

        A program that picks tokens gives none. The layer may begin at any block, so the tokens of the latest block are
        computed again. Keys outside of attention windows may be gone, and recurrent states do not go back.
        """
        speculation, limits = self.speculation, self._scheduler.limits
        if speculation.next_tokens is None or self._cache.checkpoints is not None or set(limits.n_blocks) != {0}:
            return []
        if self._runner.model.listening == MAIN or not all(may_draft(running, n_new) for running, n_new in members):
            return []
        missing = [] if self.waits_for_program(members) else speculation.missing(members)
        if not missing or limits.n_batch < len(members) + limits.block_size:
            return []
        for running in missing[: (limits.n_batch - len(members)) // limits.block_size]:
            running.n_again = running.n_past % limits.block_size
            running.n_past -= running.n_again
        return [(running, running.pending) for running, _ in members]

    def waits_for_layer(self, members: Members) -> bool:
        """Return True if a layer that drafts is to hear a step whose tokens the program could pick."""
        return self.speculation.next_tokens is not None and self.speculation.hears(members)
