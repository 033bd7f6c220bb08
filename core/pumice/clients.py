"""The request that this context works for: its client, and whether it was cancelled."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from pumice.errors import RequestError

if TYPE_CHECKING:
    from concurrent.futures import Future

CLIENT: ContextVar[str] = ContextVar("client", default="")
"""A name of the client, such as its API key's or its address; clients take turns. Empty: each request stands alone."""

REQUEST_CANCELLED: ContextVar[Future[None] | None] = ContextVar("REQUEST_CANCELLED", default=None)
"""Is cancelled with the request: what is left of its images and sounds is not encoded."""


def check_wanted() -> None:
    """Raise RequestError if the request of this context was cancelled."""
    cancelled = REQUEST_CANCELLED.get()
    if cancelled is not None and cancelled.cancelled():
        raise cancelled_request()


def cancelled_request() -> RequestError:
    """Return the error of a request that was cancelled."""
    return RequestError("the request was cancelled")


def failure_of(future: Future[Any]) -> Exception | None:
    """Return why an ended request has no result: it was cancelled, or failed; None if it has one."""
    error = cancelled_request() if future.cancelled() else future.exception()
    return error if isinstance(error, Exception) else None
