"""Saving the cache of single prompts, which are read from disk later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from pumice.engine.requests.arguments import adapter_scales, check_ids, token_ids
from pumice.errors import ModelClosedError
from pumice.frontend.base import Base
from pumice.options import REQUEST


class Saving(Base):
    """Saving of prompts, with the folder ``cache_saved`` or ``cache_disk``."""

    def save_prompt(
        self, prompt: str | Sequence[int], *, adapters: Mapping[str, float] | None = None, cache_salt: str = ""
    ) -> int:
        """Write the cache of a prompt that was read to disk, from which later processes load it.

        Args:
            prompt: Text, or token ids that are used unchanged.
            adapters: Scale of each adapter by name; None as configured.
            cache_salt: Salt of the request that read it.

        Returns:
            The number of its first tokens whose cache is on disk; 0 without such a folder.

        Raises:
            RequestError: An argument is wrong.
        """
        with self._waiting(self._save(prompt, adapters, cache_salt)) as n_tokens:
            return n_tokens

    async def asave_prompt(
        self, prompt: str | Sequence[int], *, adapters: Mapping[str, float] | None = None, cache_salt: str = ""
    ) -> int:
        """Like ``save_prompt``, for a coroutine."""
        from asyncio import wrap_future

        return await wrap_future(self._save(prompt, adapters, cache_salt))

    def _save(self, prompt: str | Sequence[int], adapters: Mapping[str, float] | None, cache_salt: str) -> Future[int]:
        if self.closed:
            raise ModelClosedError("the model is closed")
        REQUEST["cache_salt"].check(cache_salt)
        what = "the prompt must be text or a list of token ids"
        ids = self.tokenize(prompt) if isinstance(prompt, str) else token_ids(prompt, what)
        check_ids(ids, self.n_vocab)
        return self.client.save_prompt(ids, adapter_scales(self.config.adapter_scales, adapters), cache_salt)
