"""Rate limits of each API key: requests and tokens per minute, in buckets that fill evenly."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from starlette.exceptions import HTTPException

_SECONDS = 60.0  # time in which a bucket fills


class _Bucket:
    """A bucket of requests or tokens. Tokens are counted afterwards, so that its level may fall below 0."""

    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = per_minute
        self._left = float(per_minute)
        self._at = now

    def left(self, now: float) -> float:
        self._left = min(self.per_minute, self._left + (now - self._at) * self.per_minute / _SECONDS)
        self._at = now
        return self._left

    def take(self, n: int) -> None:
        self._left -= n

    def seconds_to(self, level: float) -> float:
        """Return the seconds until the bucket has this level."""
        return max(0.0, (level - self._left) * _SECONDS / self.per_minute)


class RateLimits:
    """The buckets of every API key, for requests and tokens per minute (0 = unlimited)."""

    def __init__(self, requests: int, tokens: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = {name: limit for name, limit in (("requests", requests), ("tokens", tokens)) if limit}
        self._clock = clock
        self._clients: dict[str, dict[str, _Bucket]] = {}

    def begin(self, client: str) -> None:
        """Count a request. Raises HTTPException (429) beyond a limit. Its tokens are counted at its end."""
        buckets = self._of(client)
        now = self._clock()
        for name, bucket in buckets.items():
            if bucket.left(now) < 1:
                seconds = math.ceil(bucket.seconds_to(1))
                message = f"more than {bucket.per_minute} {name} per minute: try again in {seconds} s"
                raise HTTPException(429, message, {"Retry-After": str(seconds), **self.headers(client)})
        if "requests" in buckets:
            buckets["requests"].take(1)

    def end(self, client: str, n_tokens: int) -> None:
        """Count the tokens of a finished request."""
        if "tokens" in self._limits:
            self._of(client)["tokens"].take(n_tokens)

    def headers(self, client: str) -> dict[str, str]:
        """Return OpenAI's headers of rate limits."""
        now, headers = self._clock(), {}
        for name, bucket in self._of(client).items():
            headers[f"x-ratelimit-limit-{name}"] = str(bucket.per_minute)
            headers[f"x-ratelimit-remaining-{name}"] = str(max(0, int(bucket.left(now))))
            headers[f"x-ratelimit-reset-{name}"] = f"{bucket.seconds_to(bucket.per_minute):.3f}s"
        return headers

    def _of(self, client: str) -> dict[str, _Bucket]:
        if client not in self._clients:
            now = self._clock()
            self._clients = {other: buckets for other, buckets in self._clients.items() if not _are_full(buckets, now)}
            self._clients[client] = {name: _Bucket(limit, now) for name, limit in self._limits.items()}
        return self._clients[client]


def _are_full(buckets: dict[str, _Bucket], now: float) -> bool:
    """Return True if buckets are as new ones: their client may be forgotten."""
    return all(bucket.left(now) >= bucket.per_minute for bucket in buckets.values())
