"""Short tracebacks: errors of the public interface without the frames inside Pumice."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from pumice.errors import PumiceError

Called = TypeVar("Called", bound=Callable[..., Any])


def short_traceback(call: Called) -> Called:
    """Return a function or coroutine function whose PumiceErrors have no frames of its body.

    ``PUMICE_DEBUG=1`` keeps all frames. A cause, such as the exception of a plugin, stays with its own traceback.
    """

    @functools.wraps(call)
    def calling(*arguments: Any, **options: Any) -> Any:
        try:
            return call(*arguments, **options)
        except PumiceError as error:
            _raise_short(error)

    @functools.wraps(call)
    async def awaiting(*arguments: Any, **options: Any) -> Any:
        try:
            return await call(*arguments, **options)
        except PumiceError as error:
            _raise_short(error)

    return awaiting if inspect.iscoroutinefunction(call) else calling  # type: ignore[return-value]


def _raise_short(error: PumiceError) -> NoReturn:
    if os.environ.get("PUMICE_DEBUG") == "1":
        raise error
    raise error.with_traceback(None) from error.__cause__
