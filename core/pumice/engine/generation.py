"""The state of a request in the engine: what it has generated, and, once it runs, its place in the cache."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pumice.engine import logprobs
from pumice.engine.batches import Part, Place
from pumice.engine.messages import Event, Finished, FinishReason, Logprobs, Output, Progress, Request, Timings
from pumice.engine.text import TextStream
from pumice.grammar import BudgetedReasoning
from pumice.pick import Ahead, Pick
from pumice.sampler import Chain


def salt_of(cache_salt: str, adapter_scales: Sequence[float]) -> bytes:
    """What the keys of cached blocks begin with: other adapters, other keys and values."""
    return cache_salt.encode() + np.array(adapter_scales, np.float32).tobytes()


@dataclass(eq=False)
class Generation:
    """A request on its way, waiting or running. ``tokens`` are those of the context: the prompt, then what came after.

    ``chain`` has accepted the prompt. Where an encoder reads the prompt, ``is_encoded``, the context is the decoder's.
    """

    id: int
    request: Request
    chain: Chain
    text: TextStream
    end_tokens: frozenset[int]
    n_ctx: int  # positions that it may have
    n_keep: int = 0  # leading tokens that a full context never drops
    adapter_scales: tuple[float, ...] = ()  # one for each of the model's
    is_encoded: bool = False
    after: Generation | None = None  # one with the same prompt, which reads it for both
    tokens: list[int] = field(default_factory=list)
    generated: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    timings: Timings = field(default_factory=Timings)
    queued: float = field(default_factory=time.perf_counter)  # when it came, or gave way: its place in the queue
    waits_since: float = field(default_factory=time.perf_counter)  # when it came, or lost its place in the cache
    deadline: float | None = None  # on the clock of time.perf_counter
    n_right: float = math.inf  # how many guesses in a row have been right lately: a mean that fades
    trusted: bool | None = None  # whether a program picks its tokens as the chain would; None: not known yet
    _logprobs: Logprobs | None = None  # of the token that comes next
    _new: list[tuple[int, str, Logprobs | None]] = field(default_factory=list)  # what no event has told yet
    _has_newline: bool = False
    _clock: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.tokens = self.tokens or list(self.request.prompt)
        self.timings.prompt_tokens = len(self.request.prompt)
        timeout = self.request.timeout
        self.deadline = time.perf_counter() + timeout if timeout is not None else None

    @property
    def _newline_timeout(self) -> float:
        return math.inf if self.request.newline_timeout is None else self.request.newline_timeout

    @property
    def n_left(self) -> int:
        """Tokens that may still come; a large number where the request sets no limit."""
        limit = self.request.max_tokens
        return limit - len(self.generated) if limit is not None and limit >= 0 else 1 << 62

    @property
    def is_late(self) -> bool:
        """Whether its time is over."""
        return self.deadline is not None and time.perf_counter() >= self.deadline

    @property
    def ready(self) -> bool:
        """Whether its prompt is not being read for another."""
        return self.after is None or bool(self.after.generated or self.after.finish_reason)

    def past(self, n: int) -> list[int]:
        """The latest ``n`` tokens, of the prompt and what came after; fewer if there are not so many."""
        missing = n - len(self.generated)
        latest = self.generated[-n:] if n else []
        return [*self.request.prompt[-missing:], *latest] if missing > 0 else latest

    @property
    def salt(self) -> bytes:
        return salt_of(self.request.cache_salt, self.adapter_scales)

    @property
    def wants_raw(self) -> bool:
        """Whether it needs the logits of the whole vocabulary, for log-probabilities before sampling."""
        return self.request.logprobs is not None and not self.request.logprobs_sampled

    def sample(
        self, logits: NDArray[np.float32], ids: NDArray[np.int32] | None = None, total: float = 0.0
    ) -> int | None:
        """The next token, as the chain's ``sample``; ``total``: of all logits, for log-probabilities."""
        n_top = self.request.logprobs
        if n_top is None:
            return self.chain.sample(logits, ids)
        candidates = self.chain.apply(logits, ids)
        if candidates is None or candidates.selected is None:
            return None
        if self.wants_raw:
            self._logprobs = logprobs.raw(logits, total, candidates.selected, n_top)
        else:
            self._logprobs = logprobs.sampled(candidates, n_top, self.chain.certain)
        return candidates.selected

    def picked(self, ahead: Ahead, step: int, row: int, pick: Pick) -> int:
        """The next token, as a program picked it."""
        n_top = self.request.logprobs
        if n_top is not None and ahead.raw is not None and self.wants_raw:
            self._logprobs = logprobs.found(ahead.raw, step, row, n_top)
        elif n_top is not None:
            self._logprobs = logprobs.kept(ahead, step, row, pick, n_top)
        return int(ahead.picked[step, row])

    def admitted(self, n_cached: int) -> None:
        """Note the end of waiting, at first with ``n_cached`` tokens in the cache."""
        if not self.generated:
            self.timings.queue_seconds += self._lap()
            self.timings.prompt_cached = min(n_cached, self.timings.prompt_tokens)

    def progress(self, n_read: int) -> Progress:
        """That so many tokens are read by now."""
        self.timings.prompt_seconds += self._lap()
        return Progress(self.id, n_read, len(self.tokens), self.timings.prompt_cached, self.timings.prompt_seconds)

    def accept(self, token: int) -> None:
        """Take a sampled token: end on an end token or a stop string, else append it.

        What ends the reasoning for the model is none of its text: nothing in it ends the answer.
        """
        if self.generated:
            self.timings.generation_seconds += self._lap()
        else:
            self.timings.prompt_seconds += self._lap()
        chosen = not any(isinstance(each, BudgetedReasoning) and each.is_closing for each in self.chain.masking)
        if chosen and token in self.end_tokens:
            self.finish_reason = "stop"
            return
        self.tokens.append(token)
        self.generated.append(token)
        self.timings.generated_tokens += 1
        self.chain.accept(token)
        text = self.text.push(token, stops=chosen)
        self._new.append((token, text, self._logprobs))
        self._has_newline |= chosen and "\n" in text
        if self.text.stopped:
            self.finish_reason = "stop"
        elif self.n_left <= 0:
            self.finish_reason = "length"
        elif self._has_newline and self.timings.generation_seconds > self._newline_timeout:
            self.finish_reason = "timeout"

    def follow_mask(self, least_forced: int = 1) -> None:
        """Append the tokens that the samplers' masks leave no choice about, and end where they allow none.

        Where fewer than ``least_forced`` are known to come, they are left to be picked one by one.
        """
        appends = self.request.logprobs is None
        while not self.finish_reason:
            forced = list(self.chain.forced) if appends else []
            if forced:
                if len(forced) < least_forced:
                    _ = self.chain.mask  # made here, where its errors are this sequence's alone
                    return
            elif (few := self.chain.few) is None:
                return
            elif not few:
                self.finish_reason = "stop"
            elif appends:
                forced = [*few]
            else:
                return
            self._accept_all(forced)

    def _accept_all(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            if not self.finish_reason:
                self.accept(token)

    def guessed(self, n_right: int, n_steps: int) -> None:
        """Note how many of so many guesses were right, before the first wrong one."""
        if n_right == n_steps:
            self.n_right = max(self.n_right, n_steps)
        else:
            self.n_right = n_right if math.isinf(self.n_right) else 0.75 * self.n_right + 0.25 * n_right

    def output(self) -> list[Event]:
        """The tokens since the last call, if there are any."""
        if not self._new:
            return []
        tokens, texts, found = zip(*self._new, strict=True)
        self._new.clear()
        return [Output(self.id, tokens, texts, found if self.request.logprobs is not None else None)]

    def end(self) -> list[Event]:
        """The last events of one that has finished."""
        assert self.finish_reason is not None
        return [*self.output(), Finished(self.id, self.text.finish(), self.finish_reason, self.timings)]

    def _lap(self) -> float:
        """Seconds since the last call."""
        before, self._clock = self._clock, time.perf_counter()
        return self._clock - before


@dataclass(eq=False, kw_only=True)
class Running(Place):
    """A generation with a place in the cache."""

    generation: Generation
    n_past: int  # leading tokens whose keys and values are in the cache
    admitted: float = field(default_factory=time.perf_counter)
    began: float | None = None  # when the next token could first be sampled here
    last_step: int = 0  # number of the last step that it had a part in
    is_read: bool = False  # whether an encoder has read the prompt
    n_behind: int = 0  # how many of those tokens its recurrent state lacks, once it has ended
    n_ahead: int = 0  # steps on their way, or of no use, that its recurrent state has in addition
    undecided: bool = False  # its next token needs all logits: the highest did not suffice

    @property
    def priority(self) -> int:
        return self.generation.request.priority

    @property
    def waits_since(self) -> float:
        """Since when it had waited when it came in."""
        return self.generation.waits_since

    @property
    def pending(self) -> int:
        """Tokens not computed yet: one while generating, more while the prompt is read."""
        return len(self.generation.tokens) - self.n_past

    @property
    def next_mark(self) -> int:
        """The number of tokens after which its state is to be kept next."""
        return next((mark for mark in self.tables.marks if mark > self.n_past), 1 << 62)

    @property
    def at_mark(self) -> bool:
        """Whether its state is to be kept now."""
        return self.n_past in self.tables.marks

    @property
    def reading(self) -> bool:
        """Whether no token came yet."""
        return not self.generation.generated

    def part(self, n_new: int) -> Part:
        """Its next tokens in a batch; the logits of the last are wanted where none is left to compute after it."""
        tokens = self.generation.tokens[self.n_past : self.n_past + n_new]
        wanted = [n_new - 1] if self.pending == n_new else []
        return Part(self, tokens, self.n_past, wanted, self.generation.adapter_scales)

    def progress(self) -> Progress:
        return self.generation.progress(self.n_past)
