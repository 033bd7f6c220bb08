"""The KV cache of single prompts on disk, from which later processes read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from pumice.engine.requests.arguments import adapter_scales
from pumice.frontend.answer import Answer
from pumice.frontend.engine import ModelEngine, check_open
from pumice.frontend.prompts import prompt_ids
from pumice.options import REQUEST


class PromptCache:
    """Prompts on disk, in the folder ``cache_saved`` or ``cache_disk``: ``model.cache``."""

    def __init__(self, engine: ModelEngine) -> None:
        self._engine = engine

    def save(
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
        return self._saved(prompt, adapters, cache_salt).wait()

    async def asave(
        self, prompt: str | Sequence[int], *, adapters: Mapping[str, float] | None = None, cache_salt: str = ""
    ) -> int:
        """Like ``save``, for a coroutine."""
        return await self._saved(prompt, adapters, cache_salt).awaited()

    def _saved(self, prompt: str | Sequence[int], adapters: Mapping[str, float] | None, cache_salt: str) -> Answer[int]:
        def begin() -> Future[int]:
            check_open(self._engine)
            REQUEST["cache_salt"].check(cache_salt)
            scales = adapter_scales(self._engine.config.adapter_scales, adapters)
            return self._engine.client.save_prompt(prompt_ids(self._engine, prompt), scales, cache_salt)

        return Answer(begin, int)
