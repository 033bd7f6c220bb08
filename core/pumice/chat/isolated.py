"""Chat templates rendered in a process of their own, which may take only so much memory and time.

MiniJinja counts instructions, not bytes: a template that doubles a text again and again would take all memory.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import pickle
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import IO, Any, Protocol

from pumice.chat.jinja import JinjaTemplate
from pumice.errors import EngineError, PumiceError, RequestError

MAX_MEMORY = 1 << 30  # bytes of addresses, where the system can limit them
MAX_SECONDS = 10.0  # of one rendering
_REFUSED_SECONDS = 60.0  # in which a template that took too much is not tried again
_KEPT = 8  # templates that stay compiled


class Renderer(Protocol):
    """Renders the source of a template. Raises as ``JinjaTemplate``."""

    def __call__(self, source: str, context: Mapping[str, Any]) -> str: ...


class IsolatedRenderer:
    """A ``Renderer`` in a process that is started when it is needed, and again after a template that took too much."""

    def __init__(self, max_memory: int = MAX_MEMORY, max_seconds: float = MAX_SECONDS) -> None:
        self._max_memory = max_memory
        self._max_seconds = max_seconds
        self._child: subprocess.Popen[bytes] | None = None
        self._refused: dict[str, float] = {}  # templates that took too much, and until when they are not tried
        self._lock = threading.Lock()

    def __call__(self, source: str, context: Mapping[str, Any]) -> str:
        data = pickle.dumps((source, dict(context)))
        with self._lock:
            if time.monotonic() < self._refused.get(source, 0.0):
                raise self._too_much()
            commands, results, kill = self._running()
            timer = threading.Timer(self._max_seconds, kill)
            timer.start()
            try:
                commands.write(data)
                commands.flush()
                found = pickle.load(results)
            except (OSError, EOFError, pickle.UnpicklingError):
                self._end()
                self._refused[source] = time.monotonic() + _REFUSED_SECONDS
                raise self._too_much() from None
            except BaseException:  # interrupted: what comes now would be the answer to the next
                self._end()
                raise
            finally:
                timer.cancel()
        if isinstance(found, PumiceError):
            raise found
        return str(found)

    def _too_much(self) -> RequestError:
        most = f"{self._max_seconds:g} seconds, or {self._max_memory >> 20} MiB of memory"
        return RequestError(f"the chat template fails: it takes more than {most}")

    def close(self) -> None:
        with self._lock:
            self._end()

    def _running(self) -> tuple[IO[bytes], IO[bytes], Callable[[], None]]:
        """Where commands go and results come from, once the process is there, and what ends it."""
        if self._child is None or self._child.poll() is not None:
            self._end()
            command = [sys.executable, "-P", "-m", "pumice.chat.isolated", str(self._max_memory)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            try:
                self._child = child = subprocess.Popen(command, start_new_session=True, **pipes)  # type: ignore[call-overload]
                pickle.load(child.stdout)
            except (OSError, EOFError) as error:
                self._end()
                raise EngineError(f"the process that renders chat templates does not start: {error}") from error
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        return self._child.stdin, self._child.stdout, self._child.kill

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                with contextlib.suppress(OSError):
                    if pipe:
                        pipe.close()


@functools.cache
def shared_renderer() -> IsolatedRenderer:
    """One for all models of this process."""
    renderer = IsolatedRenderer()
    atexit.register(renderer.close)
    return renderer


def main(max_memory: int) -> None:
    """The process: a source and a context in, a text or an error out, until the input ends."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (max_memory, max_memory))
    templates: OrderedDict[str, JinjaTemplate] = OrderedDict()
    _answer("ready")
    while True:
        try:
            source, context = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            if source not in templates:
                templates[source] = JinjaTemplate(source)
            templates.move_to_end(source)
            found: Any = templates[source].render(context)
        except PumiceError as error:
            found = error
        while len(templates) > _KEPT:
            templates.popitem(last=False)
        _answer(found)


def _answer(found: Any) -> None:
    pickle.dump(found, sys.stdout.buffer)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
