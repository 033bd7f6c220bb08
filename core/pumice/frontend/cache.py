"""The KV cache of single prompts, on disk or as bytes, which later processes read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from pumice.engine import Request
from pumice.engine.messages import SavePrompt, Terms, check_adapters
from pumice.errors import RequestError
from pumice.frontend.answer import Answer
from pumice.frontend.engine import ModelEngine, check_open
from pumice.frontend.prompts import prompt_ids
from pumice.options import REQUEST
from pumice.streaming.stream import Stream
from pumice.wording import show_python


class PromptCache:
    """The KV cache of prompts, on disk (``cache_saved`` or ``cache_disk``) or as bytes: ``model.cache``."""

    def __init__(self, engine: ModelEngine) -> None:
        self._engine = engine

    def save(
        self,
        prompt: str | Sequence[int],
        *,
        adapters: Mapping[str, float] | None = None,
        cache_salt: str = "",
        timeout: float | None = None,
    ) -> int:
        """Write the cache of a prompt that was read to disk, from which later processes load it.

        Args:
            prompt: Text, or token ids that are used unchanged.
            adapters: Scale of each adapter by name; None as configured.
            cache_salt: Salt of the request that read it.
            timeout: Timeout in seconds, including time in the queue.

        Returns:
            The number of its first tokens whose cache is on disk; 0 without such a folder.

        Raises:
            RequestError: An argument is wrong.
            RequestTimeoutError: The timeout has passed.
            ConfigError: The folder's disk is full, or the folder cannot be written.
        """
        return self._saved(prompt, adapters, cache_salt, Terms(timeout=timeout)).wait()

    async def asave(
        self,
        prompt: str | Sequence[int],
        *,
        adapters: Mapping[str, float] | None = None,
        cache_salt: str = "",
        timeout: float | None = None,
    ) -> int:
        """Like ``save``, for a coroutine."""
        return await self._saved(prompt, adapters, cache_salt, Terms(timeout=timeout)).awaited()

    def state(
        self, prompt: str | Sequence[int], *, adapters: Mapping[str, float] | None = None, cache_salt: str = ""
    ) -> bytes:
        """Return the KV cache of a prompt, which is read if it was not; the engine must be in this process.

        Args:
            prompt: Text, or token ids that are used unchanged.
            adapters: Scale of each adapter by name; None as configured.
            cache_salt: Salt of the requests that will use it.

        Returns:
            Bytes for ``restore``. They cover whole blocks of the cache, and so all but the last tokens of the prompt.

        Raises:
            RequestError: An argument is wrong, or the cache of this model cannot leave its device.
        """
        ids = prompt_ids(self._engine, prompt)
        request = Request(ids, max_tokens=1, adapters=adapters, cache_salt=cache_salt)
        Stream.open(self._engine.client, request)[0].completion()
        return self._engine.state(ids, adapters, cache_salt)

    def restore(self, state: bytes) -> int:
        """Keep a prompt's KV cache in host memory, where requests with this prompt find it, until the model is closed.

        Args:
            state: What ``state`` returned, in this process or another one, for the same files and settings.

        Returns:
            The number of tokens that need not be read again.

        Raises:
            RequestError: The bytes are damaged, or those of another model or of other settings.
        """
        check_open(self._engine)
        if not isinstance(state, (bytes, bytearray)):
            raise RequestError(f"state must be the bytes that state returned, not {show_python(state)}")
        return self._engine.restore(bytes(state))

    def _saved(
        self, prompt: str | Sequence[int], adapters: Mapping[str, float] | None, cache_salt: str, terms: Terms
    ) -> Answer[int]:
        def begin() -> Future[int]:
            check_open(self._engine)
            REQUEST["cache_salt"].check(cache_salt)
            check_adapters(adapters)
            return self._engine.client.ask(SavePrompt, prompt_ids(self._engine, prompt), adapters, cache_salt, terms)

        return Answer(begin, int)
