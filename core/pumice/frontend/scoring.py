"""Scoring: how likely a model finds a text that it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from pumice.engine.lone import NO_PREDICTION
from pumice.engine.messages import Logprobs
from pumice.engine.prepare import adapter_scales, check_ids, check_text, token_ids
from pumice.errors import ModelClosedError, PromptTooLongError, RequestError
from pumice.frontend.base import Base


class Scoring(Base):
    """Any model that writes from left to right scores texts, too."""

    def prompt_logprobs(
        self,
        prompt: str | Sequence[int],
        n_top: int = 0,
        *,
        adapters: Mapping[str, float] | None = None,
        cache_salt: str = "",
    ) -> Sequence[Logprobs]:
        """Of each token of a prompt after the first: its log-probability, and ``n_top`` of the likeliest in its place.

        ``adapters`` and ``cache_salt`` as in ``request``. Raises RequestError for a model without such probabilities,
        a prompt that does not fit or a wrong argument.
        """
        with self._waiting(self._score(prompt, n_top, adapters, cache_salt)) as found:
            return found

    async def aprompt_logprobs(
        self,
        prompt: str | Sequence[int],
        n_top: int = 0,
        *,
        adapters: Mapping[str, float] | None = None,
        cache_salt: str = "",
    ) -> Sequence[Logprobs]:
        """As ``prompt_logprobs``, for a coroutine."""
        from asyncio import wrap_future

        return await wrap_future(self._score(prompt, n_top, adapters, cache_salt))

    def _score(
        self, prompt: Any, n_top: int, adapters: Mapping[str, float] | None, cache_salt: str
    ) -> Future[Sequence[Logprobs]]:
        if self.closed:
            raise ModelClosedError("the model is closed")
        if not self.facts.generates or self.facts.fills_masks:
            raise RequestError(NO_PREDICTION)
        if type(n_top) is not int or n_top < 0:
            raise RequestError(f"n_top must be an integer, at least 0, not {n_top!r}")
        check_text("cache_salt", cache_salt)
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
        return self.client.score(ids, n_top, scales, cache_salt)
