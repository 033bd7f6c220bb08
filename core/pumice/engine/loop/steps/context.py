"""The context of submitted steps: the parts of the engine that all kinds use, and the time of the latest result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import MAIN
from pumice.backend import Capabilities
from pumice.backend.step import Batch
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.loop.lookahead import Lookahead
from pumice.engine.loop.scheduler import Scheduler
from pumice.engine.loop.states import RecurrentStates
from pumice.engine.loop.steps.drafting import Drafting
from pumice.engine.messages import Event
from pumice.engine.placement.runner import Runner
from pumice.engine.requests import logprobs
from pumice.engine.requests.generation import Members, Running
from pumice.graph.media import ROWS


@dataclass(eq=False)
class StepContext:
    """The parts of an engine that submit steps and continue with their tokens.

    Attributes:
        tell: called with each event.
        landed: ``time.perf_counter()`` of the latest result.
    """

    runner: Runner
    lookahead: Lookahead
    scheduler: Scheduler
    cache: KVCache
    states: RecurrentStates
    drafting: Drafting
    tell: Callable[[Event], None]
    landed: float = 0.0

    def __post_init__(self) -> None:
        self.speculation = self.drafting.speculation
        self.can: Capabilities = self.lookahead.can

    @property
    def least_forced(self) -> int:
        """The minimum number of forced tokens to read like a prompt, which ends all steps submitted behind others."""
        goes_on = self.can.registers and self.cache.checkpoints is None
        return 3 + len(self.scheduler.running) if goes_on else 1

    @staticmethod
    def now() -> float:
        """Return ``time.perf_counter()``."""
        return time.perf_counter()

    def note_result(self) -> float:
        """Note that a result arrived now, and return the time."""
        self.landed = self.now()
        return self.landed

    def is_alone(self, sequences: Sequence[Running]) -> bool:
        """Return True if these sequences are all that run, none has ended, and no other waits for admission."""
        if any(running.generation.finish_reason for running in sequences):
            return False
        return len(sequences) == len(self.scheduler.running) and not self.scheduler.may_admit()

    def listening(self, members: Members, batch: Batch) -> str | None:
        """Return the graph that gives the hidden states of a step, if a layer that drafts wants them."""
        if self.speculation.next_tokens is None:
            return None
        graph = self.runner.model.listening
        is_wanted = graph == MAIN or (ROWS not in batch.inputs and self.speculation.hears(members))
        return graph if is_wanted else None

    def computed(self, members: Members) -> None:
        """Record that the tokens of a step are in the cache, and report progress of prompts."""
        self.advance(members)
        self.report(members)

    def advance(self, members: Members) -> None:
        """Record that the tokens of a step are in the cache, or will be once it ends."""
        for running, n_new in members:
            self.scheduler.computed(running, n_new)

    def report(self, members: Members) -> None:
        """Report progress of prompts, and keep recurrent states after the prefixes that others may share."""
        for running, _ in members:
            if running.reading:
                self.tell(running.progress())
        if self.cache.checkpoints is not None:
            self.states.keep([running for running, _ in members if running.at_mark])

    def sample(self, whole: Sequence[Running], logits: NDArray[np.float32]) -> None:
        """Continue with the tokens that the chains of sequences choose from their rows of logits.

        An error, such as logits that are not finite, is that of its sequence alone.
        """
        totals = logprobs.totals(logits, [running.generation.wants_raw for running in whole])
        tokens: list[tuple[Running, int]] = []
        for running, row, total in zip(whole, logits, totals, strict=True):
            try:
                token = running.generation.sample(row, total=total)
            except Exception as error:
                self.scheduler.fail([running], error)
                continue
            assert token is not None
            tokens.append((running, token))
        self.scheduler.take(tokens)
