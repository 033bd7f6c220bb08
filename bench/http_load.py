"""Load generator for llama-server's ``/completion``: users in a closed loop, or arrivals in an open one.

It reads the socket directly, so its own cost is small: some 20 microseconds per token.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

_HEADERS = "POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"


@dataclass
class Answer:
    """Arrival times of an answer's parts, in seconds of the performance counter."""

    asked: float
    arrivals: list[tuple[float, int]] = field(default_factory=list)  # time, number of tokens
    error: str = ""

    @property
    def n_tokens(self) -> int:
        return sum(n for _, n in self.arrivals)

    @property
    def first(self) -> float:
        """Seconds to the first token."""
        return self.arrivals[0][0] - self.asked

    @property
    def gaps(self) -> list[float]:
        """Seconds between arrivals, as the client waits; several tokens may arrive together."""
        return [later - earlier for (earlier, _), (later, _) in pairwise(self.arrivals)]

    @property
    def per_token(self) -> float:
        """Seconds from the first arrival to the last, for each token behind the first arrival; 0 without any."""
        n_later = self.n_tokens - self.arrivals[0][1]
        return (self.arrivals[-1][0] - self.arrivals[0][0]) / n_later if n_later else 0.0


@dataclass(frozen=True)
class Work:
    """Parameters of the requests: random token ids, independent of tokenizers, and the number of tokens."""

    prompt: int
    generate: int
    n_vocab: int
    extra: dict[str, Any] = field(default_factory=dict)  # additional fields of the request

    def body(self, rng: random.Random) -> bytes:
        request = {
            "prompt": [rng.randrange(100, self.n_vocab) for _ in range(self.prompt)],
            "n_predict": self.generate,
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": False,
            "stream": True,
            "return_tokens": True,
            **self.extra,
        }
        return json.dumps(request).encode()


async def ask(port: int, body: bytes) -> Answer:
    """Send one request and read it to its end."""
    answer = Answer(time.perf_counter())
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    try:
        writer.write(f"{_HEADERS}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        status = await reader.readline()
        if b" 200 " not in status:
            answer.error = (status + await reader.read()).decode(errors="replace")
            return answer
        async for event in _events(reader):
            if "error" in event:
                answer.error = str(event["error"])
            elif event.get("tokens") and not event.get("stop"):
                answer.arrivals.append((time.perf_counter(), len(event["tokens"])))
    finally:
        writer.close()
    if not answer.arrivals:
        answer.error = answer.error or "no token received"
    return answer


async def _events(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """Yield the data of server-sent events, independent of the transfer's chunks."""
    async for line in reader:
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            yield event
            if event.get("stop"):
                return


async def closed_loop(port: int, work: Work, users: int, requests: int, seed: int) -> list[Answer]:
    """Run users who send ``requests`` requests each, the next as soon as the previous is answered."""
    rng = random.Random(seed)

    async def user() -> list[Answer]:
        return [await ask(port, work.body(rng)) for _ in range(requests)]

    return [answer for answers in await asyncio.gather(*(user() for _ in range(users))) for answer in answers]


async def open_loop(port: int, work: Work, rate: float, seconds: float, seed: int) -> list[Answer]:
    """Send ``rate`` requests per second (Poisson) for ``seconds``, regardless of pending answers."""
    rng = random.Random(seed)
    asked = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        asked.append(asyncio.create_task(ask(port, work.body(rng))))
        await asyncio.sleep(rng.expovariate(rate))
    return list(await asyncio.gather(*asked))
