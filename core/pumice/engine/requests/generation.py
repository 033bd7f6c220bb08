"""The state of a request in the engine: its generated tokens and, while it runs, its place in the KV cache."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pumice.backend.pick import Ahead, Pick
from pumice.backend.step import LATEST
from pumice.engine.messages import (
    EngineFinishReason,
    Event,
    Failed,
    Finished,
    Logprobs,
    Progress,
    Request,
    Timings,
)
from pumice.engine.requests.arguments import Scales
from pumice.engine.requests.batches import Part, Place
from pumice.engine.requests.job import Job
from pumice.engine.requests.outputs import (
    NewTokens,
    TextStream,
    found_logprobs,
    kept_logprobs,
    log_totals,
    raw_logprobs,
    sampled_logprobs,
)
from pumice.grammar import BudgetedReasoning
from pumice.sampler import Chain
from pumice.sampler.functions import Functions, LayerFunctions

GENERATE = "generate"
"""The kind of generations, beside those of readings."""


def salt_of(cache_salt: str, adapters: Scales) -> bytes:
    """Return the salt of cached blocks' keys, which includes the adapters in use and their scales."""
    return cache_salt.encode(errors="surrogatepass") + (repr(adapters).encode() if adapters else b"")


@dataclass(eq=False)
class Generation(Job):
    """A waiting or running request. ``tokens`` is the context: the prompt and the generated tokens.

    ``chain`` has accepted the prompt. If an encoder reads the prompt (``encoder_prompt``), the context is the
    decoder's.
    """

    request: Request
    chain: Chain
    text: TextStream
    end_tokens: frozenset[int]
    n_ctx: int  # maximum positions
    n_keep: int = 0  # leading tokens that a context shift keeps
    prediction: Sequence[int] = ()  # tokens of the text that the request expects
    functions: Functions | None = None  # of the request, one of the chain's samplers
    layers: LayerFunctions | None = None  # of the request
    after: Generation | None = None  # a generation with the same prompt, which reads it for both
    tokens: list[int] = field(default_factory=list, kw_only=True)
    generated: list[int] = field(default_factory=list)
    finish_reason: EngineFinishReason | None = None
    timings: Timings = field(default_factory=Timings)
    kind: ClassVar[str] = GENERATE
    spoken: Sequence[int] = field(init=False)  # tokens of the prompt, without media
    trusted: bool | None = None  # True if a program picks tokens like the chain; None if unknown
    n_behind: int = 0  # tokens that its recurrent state lacks after its end
    n_again: int = 0  # tokens computed again, since the state had seen wrong ones
    n_ahead: int = 0  # positions behind n_past that pending steps compute, or that its recurrent state has seen
    n_coming: int = 0  # tokens behind those of the text that pending steps pick
    undecided: bool = False  # its next token needs all logits rather than the highest
    _logprobs: Logprobs | None = None  # of the next token
    _new: NewTokens = field(default_factory=NewTokens)  # not yet reported by events
    _end: tuple[int, Logprobs] | None = None  # the end token, if log-probabilities are asked for
    _has_newline: bool = False
    _echo: str = field(init=False)  # text that comes before the first token's
    _clock: float = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = self.tokens or list(self.request.prompt)
        self.spoken = [token for token in self.tokens if token >= 0] if self.media else self.request.prompt
        self.timings.prompt_tokens = len(self.request.prompt)
        self._echo = self.request.prompt_text if self.request.echo else ""
        self._clock = self.arrived

    @property
    def n_left(self) -> int:
        """Return the maximum number of further tokens; a large number without a limit."""
        limit = self.request.max_tokens
        return limit - len(self.generated) if limit is not None and limit >= 0 else 1 << 62

    @property
    def request_name(self) -> str | int:
        return self.request.request_id or self.id

    @property
    def ready(self) -> bool:
        """True unless another generation reads its prompt."""
        return self.after is None or bool(self.after.generated or self.after.finish_reason)

    @property
    def salt(self) -> bytes:
        salt = salt_of(self.request.cache_salt, self.adapters)
        if self.layers is not None:
            salt += b"\xffrows of %d" % self.id  # nobody else has its blocks
        return salt + b"\xffmedia round %d" % self.media.round if self.media and self.media.round else salt

    @property
    def wants_raw(self) -> bool:
        """True if it needs the logits of the whole vocabulary, for log-probabilities before sampling."""
        return self.request.logprobs is not None and not self.request.logprobs_sampled

    def sample(self, logits: NDArray[np.float32], ids: NDArray[np.int32] | None = None) -> int | None:
        """Return the next token, sampled by the chain unless a mask forces it."""
        if self.layers is not None and self.layers.error is not None:
            raise self.layers.error
        n_top = self.request.logprobs
        if n_top is None:
            return self.chain.sample(logits, ids)
        candidates = self.chain.apply(logits, ids)
        if candidates is None or candidates.selected is None:
            return None
        if self.wants_raw:
            self._logprobs = self._raw_logprobs(logits, candidates.selected, candidates.total)
        else:
            self._logprobs = sampled_logprobs(candidates, n_top, self.chain.certain)
        return candidates.selected

    def _raw_logprobs(self, logits: NDArray[np.float32], token: int, total: float | None) -> Logprobs:
        """Return the log-probability of a token before sampling; with the ``total`` of a sampler's rules among these.

        The most probable tokens are those of the whole vocabulary.
        """
        most = self.request.top_positions
        n_top = (self.request.logprobs or 0) if most is None or len(self.generated) < most else 0
        if total is not None and not n_top:
            return Logprobs(float(logits[token]) - total, [])
        raw = raw_logprobs(logits, log_totals(logits[None], [True])[0], token, n_top)
        return raw if total is None else Logprobs(float(logits[token]) - total, raw.top)

    def note_logprobs(self, ahead: Ahead, step: int, row: int, pick: Pick) -> None:
        """Note the log-probabilities of the next token, which a program picked."""
        n_top = self.request.logprobs or 0
        if ahead.raw is not None and self.wants_raw:
            self._logprobs = found_logprobs(ahead.raw, step, row, n_top)
        else:
            self._logprobs = kept_logprobs(ahead, step, row, pick, n_top)

    # --- its place in the cache

    def enter(self, place: Place, n_past: int, step: int) -> None:
        super().enter(place, n_past, step)
        self.n_behind = self.n_again = self.n_ahead = self.n_coming = 0
        self.undecided = False

    @property
    def known(self) -> Sequence[int]:
        return self.tokens

    @property
    def n_unread(self) -> int:
        """The number of tokens of the text that are not in the cache."""
        return len(self.tokens) - self.n_past

    @property
    def pending(self) -> int:
        """The number of tokens to compute next: one while generating, more while reading the prompt."""
        return self.n_unread + self.n_coming - self.n_ahead

    @property
    def reads_on(self) -> bool:
        return self.pending > 1 + self.n_again

    def part(self, n_new: int, draft: Sequence[int] = ()) -> Part:
        """Return its next tokens, and drafted ones after them, as part of a batch.

        A token that pending steps pick is that of its slot. Outputs are the logits of the last token, if none remains
        to be computed, and of all drafted tokens.
        """
        first = self.n_past + self.n_ahead
        known = self.tokens[first : first + n_new]
        tokens = [*known, *[LATEST] * (n_new - len(known)), *draft]
        rows = range(n_new - 1, len(tokens)) if self.pending == n_new else []
        return Part(self, tokens, first, rows, self.adapters, self.media, self.layers)

    def loaded(self) -> list[Event]:
        if self.generated:
            return []
        self.timings.prompt_cached = min(self.n_past, self.timings.prompt_tokens)
        return [self.progress()]

    # --- its tokens

    def begin(self) -> None:
        if not self.generated:
            self.timings.queue_seconds += self._lap()

    def progress(self) -> Progress:
        """Return the event that ``n_past`` tokens have been read."""
        self.timings.prompt_seconds += self._lap()
        return Progress(self.id, self.n_past, len(self.tokens), self.timings.prompt_cached, self.timings.prompt_seconds)

    def accept(self, token: int) -> None:
        """Accept a sampled token: end on an end token or a stop string, else append it.

        Tokens that a budget inserts to end reasoning never end the answer.
        """
        if self.generated:
            self.timings.generation_seconds += self._lap()
        else:
            self.timings.prompt_seconds += self._lap()
        chosen = not self.chain.masking or not any(
            isinstance(sampler, BudgetedReasoning) and sampler.is_closing for sampler in self.chain.masking
        )
        stopped = self.functions is not None and self.functions.stopped
        if stopped or (chosen and token in self.end_tokens):
            self.finish_reason = "stop"
            self._end = (token, self._logprobs) if self._logprobs and not stopped else None
            return
        self.tokens.append(token)
        self.generated.append(token)
        self.timings.generated_tokens += 1
        self.chain.accept(token)
        text = self.text.push(token, stops=chosen and len(self.generated) > self.request.min_tokens)
        self._new.add(token, self._echo + text, self._logprobs)
        self._echo = ""
        self._has_newline |= chosen and "\n" in text
        timeout = self.request.newline_timeout
        if self.text.stopped:
            self.finish_reason = "stop"
        elif self.n_left <= 0:
            self.finish_reason = "length"
        elif self._has_newline and timeout is not None and self.timings.generation_seconds > timeout:
            self.finish_reason = "timeout"

    def follow_mask(self, least_forced: int) -> None:
        """Append the tokens that the samplers' masks force, and end if they allow none.

        Fewer than ``least_forced`` forced tokens are left to be picked one by one.
        """
        appends = self.request.logprobs is None
        while not self.finish_reason:
            forced = list(self.chain.forced) if appends else []
            if forced:
                if len(forced) < least_forced:
                    _ = self.chain.mask  # computed here, so that its errors affect this sequence only
                    return
            elif (few := self.chain.few) is None:
                return
            elif not few:
                self.finish_reason = "stop"
            elif appends:
                forced = [*few]
            else:
                return
            for token in forced:
                if not self.finish_reason:
                    self.accept(token)

    def output(self) -> list[Event]:
        """Return the event of the tokens since the last call, if any."""
        return self._new.take(self.id, has_logprobs=self.request.logprobs is not None)

    def end(self) -> list[Event]:
        """Return the last events of a finished generation."""
        assert self.finish_reason is not None
        text, self._echo = self._echo + self.text.finish(), ""
        return [*self.output(), Finished(self.id, text, self.finish_reason, self.timings, self._end)]

    def stop(self, reason: EngineFinishReason) -> list[Event]:
        """End it with its text so far."""
        self.finish_reason = self.finish_reason or reason
        return self.end()

    def fail(self, error: Exception) -> list[Event]:
        self.finish_reason = "cancelled"
        self._new.clear()
        return [Failed(self.id, error)]

    def _lap(self) -> float:
        """Return the seconds since the last call."""
        before, self._clock = self._clock, time.perf_counter()
        return self._clock - before


Members = list[tuple[Generation, int]]
"""The sequences of a batch, with their numbers of tokens."""
