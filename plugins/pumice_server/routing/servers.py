"""The servers behind ``pumice route``: which of them answer, how busy they are, and which has read a prompt before."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
import orjson

from pumice_server.routing.prefixes import Prefixes

_PROMPT_FIELDS = ("model", "tools", "system", "instructions", "prompt", "messages", "input", "query", "content")
"""Fields of the bodies of all protocols that become the prompt, in the order of templates."""

_CHECK_SECONDS = 2.0  # between two checks of a server, and for its answer

logger = logging.getLogger("pumice")


@dataclass(eq=False)
class Server:
    """A server, with the number of its requests under way."""

    url: str
    n_running: int = 0
    is_up: bool = True

    def note(self, problem: str) -> None:
        """Record that the server answers (an empty problem), or why it does not."""
        if problem and self.is_up:
            logger.warning("%s: %s; its requests go to the other servers", self.url, problem)
        if not problem and not self.is_up:
            logger.warning("%s: answers again", self.url)
        self.is_up = not problem


class Servers:
    """Chooses a server for each request.

    Args:
        urls: Addresses of the servers.
        n_parallel: Requests that a server with the beginning of a prompt computes before others take more of them.
    """

    def __init__(self, urls: Sequence[str], n_parallel: int) -> None:
        self.all = [Server(url.rstrip("/")) for url in urls]
        self._n_parallel = n_parallel
        self._prefixes = Prefixes()

    def choose(self, prompt: Prompt | None, tried: Collection[Server]) -> Server | None:
        """Return the server for a request, or None if all were tried.

        A prompt goes to the server that read the longest beginning of it, else to the least busy one. A request without
        a prompt goes to the first server, so that files, batches and conversations are all in one place.
        """
        left = [server for server in self.all if server not in tried]
        up = [server for server in left if server.is_up] or left
        if not up or prompt is None:
            return up[0] if up else None
        depth, holders = self._prefixes.holders(prompt.text, prompt.salt, up)
        free = [server for server in up if server in holders and server.n_running < self._n_parallel] if depth else []
        chosen = min(free or random.sample(up, len(up)), key=lambda server: server.n_running)
        self._prefixes.add(prompt.text, prompt.salt, chosen)
        return chosen

    async def watch(self, client: httpx2.AsyncClient) -> None:
        """Check all servers again and again."""
        while True:
            await asyncio.gather(*(_check(server, client) for server in self.all))
            await asyncio.sleep(_CHECK_SECONDS)


@dataclass(frozen=True)
class Prompt:
    """What of a request's body decides which server has most of it in its cache."""

    text: bytes
    salt: str


def prompt_of(body: bytes) -> Prompt | None:
    """Return the prompt of a body, or None if it has none."""
    try:
        fields: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(fields, dict):
        return None
    text = b"".join(orjson.dumps(fields[name]) for name in _PROMPT_FIELDS if fields.get(name))
    return Prompt(text, str(fields.get("cache_salt", ""))) if text else None


async def _check(server: Server, client: httpx2.AsyncClient) -> None:
    try:
        answer = await client.get(f"{server.url}/health", timeout=_CHECK_SECONDS)
        server.note("" if answer.status_code == httpx2.codes.OK else f"/health answers {answer.status_code}")
    except httpx2.TransportError as error:
        server.note(reason_of(error))


def reason_of(error: httpx2.TransportError) -> str:
    """Return why a server gave no answer."""
    return str(error) or type(error).__name__
