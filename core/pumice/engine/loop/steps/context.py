"""The parts of the engine that steps of generations use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pumice.architecture import MAIN
from pumice.backend import Capabilities
from pumice.backend.step import Batch
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.drafts.speculation import Speculation
from pumice.engine.loop.lookahead import Lookahead
from pumice.engine.loop.scheduler import Scheduler
from pumice.engine.loop.states import RecurrentStates
from pumice.engine.messages import Event
from pumice.engine.placement.runner import Runner
from pumice.engine.requests.batches import Part, batch_after, batch_of
from pumice.engine.requests.generation import Members, Running
from pumice.graph.media import ROWS

WAITING = 8
"""Steps without drafts that are submitted while a program prepares those that verify drafts."""


@dataclass(eq=False)
class StepContext:
    """The parts of an engine that submit steps and continue with their tokens.

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

    def __post_init__(self) -> None:
        self.can: Capabilities = self.lookahead.can
        self._last: tuple[list[int], Batch] | None = None  # the latest batch of single tokens, with table versions

    @property
    def least_forced(self) -> int:
        """The minimum number of forced tokens to read like a prompt, which ends all steps submitted behind others."""
        goes_on = self.can.registers and self.cache.checkpoints is None
        return 3 + len(self.scheduler.running) if goes_on else 1

    def is_alone(self, sequences: Sequence[Running]) -> bool:
        """Return True if these sequences are all that run, none has ended, and no other waits for admission."""
        if any(running.generation.finish_reason for running in sequences):
            return False
        return len(sequences) == len(self.scheduler.running) and not self.scheduler.may_admit()

    def batch(self, parts: Sequence[Part]) -> Batch:
        """Return the batch of a step; it shares arrays with the latest one if tokens and positions alone differ."""
        is_plain = all(map(_is_plain, parts))
        versions = [number for part in parts for number in (part.place.slot, part.place.tables.version)]
        if is_plain and self._last is not None and self._last[0] == versions:
            batch = batch_after(self._last[1], parts)
        else:
            batch = batch_of(self.cache, parts)
        self._last = (versions, batch) if is_plain else None
        return batch

    def listening(self, members: Members, batch: Batch) -> str | None:
        """Return the graph that gives the hidden states of a step, if a layer that drafts wants them."""
        if self.speculation.layer is None:
            return None
        graph = self.runner.model.listening
        is_wanted = graph == MAIN or (ROWS not in batch.inputs and self.speculation.hears(members))
        return graph if is_wanted else None

    # --- drafts

    def n_free(self, members: Members) -> int:
        """Return the number of steps, from the current one on, after whose first no proposer is asked; at least 1."""
        return WAITING if self.waits_for_program(members) else self.speculation.n_free(members)

    def waits_for_program(self, members: Members) -> bool:
        """Return True while the program prepares the steps that would verify drafts of this batch."""
        if self.speculation.choice.is_fixed or not self.lookahead.verifies(members):
            return False
        if self.speculation.n_free(members) > 1:
            return False
        self.runner.prepare_drafts()
        return self.runner.prepares_drafts


def _is_plain(part: Part) -> bool:
    """Return True if a part is the last token of a text, and nothing else."""
    is_single = len(part.tokens) == len(part.output_rows) == 1
    return is_single and not (part.adapters or part.media or part.place.memory or part.taps)
