"""Scoring: log-probabilities of the tokens of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from pumice.engine.messages import Logprobs
from pumice.engine.requests.arguments import NO_PREDICTION, adapter_scales, check_ids, token_ids
from pumice.errors import ModelClosedError, PromptTooLongError, RequestError
from pumice.frontend.base import Base
from pumice.options import REQUEST
from pumice.wording import show_python


class Scoring(Base):
    """Scoring of texts with any model that generates from left to right."""

    def prompt_logprobs(
        self,
        prompt: str | Sequence[int],
        n_top: int = 0,
        *,
        adapters: Mapping[str, float] | None = None,
        cache_salt: str = "",
        priority: int = 0,
    ) -> Sequence[Logprobs]:
        """Return the log-probability of each token of a prompt after the first.

        Args:
            prompt: Text, or token ids that are used unchanged.
            n_top: Number of most probable tokens to return beside each token.
            adapters: Scale of each adapter by name; None as configured.
            cache_salt: Share cached prefixes only with requests that have the same salt.
            priority: Requests with a higher one come first.

        Raises:
            RequestError: The model has no such probabilities, the prompt does not fit, or an argument is wrong.
        """
        with self._waiting(self._score(prompt, n_top, adapters, cache_salt, priority)) as logprobs:
            return logprobs

    async def aprompt_logprobs(
        self,
        prompt: str | Sequence[int],
        n_top: int = 0,
        *,
        adapters: Mapping[str, float] | None = None,
        cache_salt: str = "",
        priority: int = 0,
    ) -> Sequence[Logprobs]:
        """Like ``prompt_logprobs``, for a coroutine."""
        from asyncio import wrap_future

        return await wrap_future(self._score(prompt, n_top, adapters, cache_salt, priority))

    def _score(
        self, prompt: Any, n_top: int, adapters: Mapping[str, float] | None, cache_salt: str, priority: int
    ) -> Future[Sequence[Logprobs]]:
        if self.closed:
            raise ModelClosedError("the model is closed")
        if not self.facts.generates or self.facts.fills_masks:
            raise RequestError(NO_PREDICTION)
        if type(n_top) is not int or n_top < 0:
            raise RequestError(f"n_top must be an integer, at least 0, not {show_python(n_top)}")
        REQUEST["cache_salt"].check(cache_salt)
        REQUEST["priority"].check(priority)
        what = "the prompt must be text or a list of token ids"
        ids = self.tokenize(prompt) if isinstance(prompt, str) else token_ids(prompt, what)
        check_ids(ids, self.n_vocab)
        if len(ids) > self.n_ctx:
            raise PromptTooLongError(len(ids), self.n_ctx)
        scales = adapter_scales(self.config.adapter_scales, adapters)
        future: Future[Sequence[Logprobs]] = Future()
        if len(ids) < 2:  # nothing predicts the first
            future.set_result([])
            return future
        return self.client.score(ids, n_top, scales, cache_salt, priority)
