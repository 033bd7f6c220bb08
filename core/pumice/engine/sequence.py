"""One sequence being generated, from its request to its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field
from typing import Literal

from pumice.engine.kv_cache import BlockTables
from pumice.sampler import Chain

#: stop: an end-of-generation token or a stop string; length: max_tokens; context_full: no position
#: is left in the context; cancelled: by the caller.
FinishReason = Literal["stop", "length", "context_full", "cancelled"]


@dataclass(frozen=True)
class Request:
    """What to generate: at most ``max_tokens`` after ``prompt``, ending early at one of ``end_tokens``.

    With ``context_shift`` a full context drops the older half of what follows the first ``n_keep`` tokens
    and goes on; otherwise the sequence finishes with ``context_full``.
    """

    prompt: Tokens[int]
    chain: Chain
    max_tokens: int
    end_tokens: frozenset[int] = frozenset()
    context_shift: bool = False
    n_keep: int = 0


@dataclass
class Timings:
    """Seconds and tokens of one sequence. ``prompt_cached`` of the prompt's tokens were found in the cache."""

    prompt_tokens: int = 0
    prompt_cached: int = 0
    prompt_seconds: float = 0.0
    generated_tokens: int = 0
    generation_seconds: float = 0.0

    @property
    def prompt_per_second(self) -> float:
        return (self.prompt_tokens - self.prompt_cached) / self.prompt_seconds if self.prompt_seconds else 0.0

    @property
    def generation_per_second(self) -> float:
        # The first token comes out of the prompt's last step.
        return (self.generated_tokens - 1) / self.generation_seconds if self.generation_seconds else 0.0


@dataclass(eq=False)
class Sequence:
    """State of a request in the engine. ``tokens`` are those of the context: the prompt, then what was generated."""

    request: Request
    tokens: list[int]
    n_past: int = 0  # leading tokens whose keys and values are in the cache
    slot: int = -1  # of recurrent state; -1 while waiting
    tables: BlockTables | None = None
    generated: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    timings: Timings = field(default_factory=Timings)
    on_token: Callable[[int], None] | None = None
    _clock: float = field(default_factory=time.perf_counter)

    @property
    def pending(self) -> int:
        """Tokens not computed yet: one while generating, more while the prompt is read."""
        return len(self.tokens) - self.n_past

    def accept(self, token: int) -> None:
        """Take a sampled token: end on an end token, else append it."""
        self._measure()
        if token in self.request.end_tokens:
            self.finish_reason = "stop"
            return
        self.tokens.append(token)
        self.generated.append(token)
        self.timings.generated_tokens += 1
        self.request.chain.accept(token)
        if len(self.generated) >= self.request.max_tokens:
            self.finish_reason = "length"
        if self.on_token:
            self.on_token(token)

    def _measure(self) -> None:
        now = time.perf_counter()
        if self.generated:
            self.timings.generation_seconds += now - self._clock
        else:
            self.timings.prompt_seconds += now - self._clock
        self._clock = now
