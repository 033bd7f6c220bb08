"""The one sequence that a ``Llama`` evaluates, its logits, and its state."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from pumice.compat.llama_cpp.options import SamplingOptions, check_names, errors_as_llama, generate_options
from pumice.compat.llama_cpp.vocabulary import VocabularyMethods


@dataclass
class LlamaState:
    """The state of a ``Llama``: tokens, their logits, and the key/value cache as bytes."""

    input_ids: NDArray[np.intc]
    scores: NDArray[np.float32]
    n_tokens: int
    llama_state: bytes
    llama_state_size: int
    seed: int


class SequenceMethods(VocabularyMethods):
    """Methods of ``Llama`` about the sequence of tokens that it has evaluated.

    Attributes:
        input_ids: int ``[n_ctx]``, of which the first ``n_tokens`` are evaluated.
        scores: float32 ``[n_ctx, n_vocab]``, the logits after each token that ``eval`` has read; with
            ``logits_all=False`` float32 ``[1, n_vocab]``, those after the last.
        n_tokens: Number of evaluated tokens.
        latest_scores: float32 ``[n, n_vocab]``, those rows of ``scores`` that the last ``eval`` has computed.
    """

    input_ids: NDArray[np.intc]
    scores: NDArray[np.float32]
    latest_scores: NDArray[np.float32]
    n_tokens: int
    last_n_tokens_size: int
    _logits_all: bool
    _seed: int

    @property
    def _input_ids(self) -> NDArray[np.intc]:
        return self.input_ids[: self.n_tokens]

    @property
    def _scores(self) -> NDArray[np.float32]:
        return self.scores[: self.n_tokens]

    @property
    def eval_tokens(self) -> deque[int]:
        """Evaluated tokens."""
        return deque(self._input_ids.tolist(), maxlen=self.n_ctx())

    @property
    def eval_logits(self) -> deque[list[float]]:
        """Logits after each evaluated token; with ``logits_all=False`` after the last."""
        return deque(self._scores.tolist(), maxlen=self.n_ctx() if self._logits_all else 1)

    def reset(self) -> None:
        """Forget the sequence."""
        self.n_tokens = 0

    def set_seed(self, seed: int) -> None:
        """Set the seed of the random numbers."""
        self._seed = seed

    def eval(self, tokens: Sequence[int]) -> None:
        """Read tokens after those of the sequence."""
        if not len(tokens):
            return
        n_past = self.n_tokens
        with errors_as_llama():
            self._extend(tokens)
            first = n_past if self._logits_all else self.n_tokens - 1
            rows = self._pumice.logits(self._input_ids.tolist(), first=first)
        self.latest_scores = rows
        if self._logits_all:
            self.scores[n_past : self.n_tokens] = rows
        else:
            self.scores[:] = rows

    def sample(self, **options: Unpack[SamplingOptions]) -> int:
        """Return the next token of the sequence, which is not read."""
        return next(self.generate(self._input_ids.tolist(), **options))

    def generate(self, tokens: Sequence[int], reset: bool = True, **options: Unpack[SamplingOptions]) -> Iterator[int]:
        """Yield the tokens that follow others, end tokens among them, until the context is full.

        Args:
            tokens: Tokens of the prompt, which follow those of the sequence with ``reset=False``.
            reset: Forget the sequence first.
            options: As those of ``create_completion``; ``temp`` is the temperature.

        Raises:
            TypeError: An option is unknown.
        """
        check_names("generate", options, SamplingOptions)
        return self._generated(tokens, reset, options)

    def _generated(self, tokens: Sequence[int], reset: bool, options: SamplingOptions) -> Iterator[int]:
        prompt = [*(() if reset else self._input_ids.tolist()), *map(int, tokens)]
        with errors_as_llama():
            chosen = generate_options(options, self.last_n_tokens_size, self._next_seed())
            chosen["max_tokens"] = None
            request = self._pumice.request(prompt, **chosen)
            endless = dataclasses.replace(request, end_tokens=frozenset())
            self.reset()
            self._extend(prompt)
            with closing(self._pumice.stream(endless)) as stream:
                for token in (piece.token for piece in stream):
                    if token is not None:
                        yield token
                        self._extend([token])

    def save_state(self) -> LlamaState:
        """Return the sequence with its logits and its key/value cache."""
        state = self._pumice.cache.state(self._input_ids.tolist()) if self.n_tokens else b""
        scores = self._scores.copy()
        return LlamaState(self.input_ids.copy(), scores, self.n_tokens, state, len(state), self._seed)

    def load_state(self, state: LlamaState) -> None:
        """Go on with a sequence that ``save_state`` returned. Raises ValueError for that of another model."""
        with errors_as_llama():
            if state.llama_state:
                self._pumice.cache.restore(state.llama_state)
        self.input_ids = state.input_ids.copy()
        self.scores[: len(state.scores)] = state.scores
        self.n_tokens, self._seed = state.n_tokens, state.seed

    def _extend(self, tokens: Sequence[int]) -> None:
        """Append tokens to the sequence. Raises ValueError if they do not fit the context."""
        end = self.n_tokens + len(tokens)
        if end > self.n_ctx():
            raise ValueError(f"Requested tokens ({end}) exceed context window of {self.n_ctx()}")
        self.input_ids[self.n_tokens : end] = tokens
        self.n_tokens = end

    def _next_seed(self) -> int:
        """Return the seed of the next text, and go on to another one, unless seeds are drawn."""
        seed = self._seed
        if seed >= 0:
            self._seed = int(np.random.default_rng(seed).integers(2**32 - 1))
        return seed
