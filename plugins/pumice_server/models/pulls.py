"""Downloads for clients: a few at once, one for each name, each until its last client has left."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException

import pumice
from pumice.cli.fetched_models import Fetched, run_fetch
from pumice.hub import ClientFetch
from pumice_server.errors import without_folders
from pumice_server.pools import PULLS, Place

_PROGRESS_SECONDS = 0.1  # between two reports to a client


class PullProgress(NamedTuple):
    """Progress of a download: file, bytes so far, bytes in total."""

    what: str
    done: int  # bytes
    total: int


class Pull:
    """One download in a daemon thread."""

    def __init__(self, fetching: ClientFetch) -> None:
        self.n_clients = 0
        self.result: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
        self._fetching = fetching
        self._aborted = False
        self._progress: PullProgress | None = None
        self._loop = asyncio.get_running_loop()

    def start(self, ended: Callable[[], None]) -> None:
        """Start the thread; ``ended`` is called on the event loop when it ends."""
        threading.Thread(target=self._run, args=(ended,), name="pumice-pull", daemon=True).start()

    def abort(self) -> None:
        self._aborted = True
        self._fetching.abort()

    async def follow(self) -> AsyncIterator[PullProgress]:
        """Yield the latest progress. Raises the errors of fetching."""
        latest: PullProgress | None = None
        while not self.result.done():
            await asyncio.wait({self.result}, timeout=_PROGRESS_SECONDS)
            if self._progress and self._progress != latest:
                latest = self._progress
                yield latest
        self.result.result()

    def _run(self, ended: Callable[[], None]) -> None:
        outcome: Fetched | Exception
        try:
            outcome = run_fetch(self._fetching, self._tell)
        except Exception as error:
            outcome = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server has ended
            self._loop.call_soon_threadsafe(self._end, outcome, ended)

    def _tell(self, what: str, done: int, total: int) -> None:
        self._progress = PullProgress(what, done, total)

    def _end(self, outcome: Fetched | Exception, ended: Callable[[], None]) -> None:
        ended()
        if isinstance(outcome, Exception):
            stopping = HTTPException(503, "the server is stopping; the downloaded part of the model is kept")
            self.result.set_exception(stopping if self._aborted else _client_error(outcome))
            self.result.exception()  # maybe nothing awaits it any more
        else:
            self.result.set_result(outcome)


class Pulls:
    """The downloads of a server. Used by the event loop alone."""

    def __init__(self) -> None:
        self._by_name: dict[str, Pull] = {}
        self._threads: dict[Pull, Place] = {}
        self._clients: Counter[str] = Counter()
        self._unattended: dict[str, asyncio.Task[None]] = {}  # downloads that no client waits for
        self._stopping = False

    def join(self, name: str) -> Pull:
        """Return the download of a model, started if there is none. Call ``leave`` afterwards. Raises HTTPException."""
        pull = self._by_name.get(name)
        if pull is None:
            if self._stopping:
                raise HTTPException(503, "the server is stopping")
            place = PULLS.take()
            try:
                pull = Pull(ClientFetch(name))
            except pumice.UnknownModelError as error:
                place.release()
                raise HTTPException(400, without_folders(str(error))) from None
            self._by_name[name] = pull
            self._threads[pull] = place
            pull.start(lambda: self._forget(name, pull))
        pull.n_clients += 1
        self._clients[name] += 1
        return pull

    @property
    def names(self) -> list[str]:
        """Names of downloads with clients that have not left, also of some that have ended."""
        return list(self._clients)

    def attended(self, name: str) -> bool:
        """Return True for a download that no client waits for, until what follows it has ended."""
        return name in self._unattended

    def attend(self, name: str, pull: Pull, work: Coroutine[Any, Any, None]) -> None:
        """Run what follows a download that is not attended yet, and leave it; ``cancel`` and ``stop`` end the work."""

        def end(_: asyncio.Task[None]) -> None:
            del self._unattended[name]
            self.leave(name, pull)

        task = asyncio.create_task(work)
        self._unattended[name] = task
        task.add_done_callback(end)  # work that is cancelled before its first turn does nothing itself

    def cancel(self, name: str) -> bool:
        """Cancel a download that no client waits for. Returns False if there is none."""
        task = self._unattended.get(name)
        return task is not None and task.cancel()

    def leave(self, name: str, pull: Pull) -> None:
        """Remove a client. Without clients the download stops; a later one resumes it."""
        pull.n_clients -= 1
        self._clients[name] -= 1
        self._clients = +self._clients
        if not pull.n_clients and self._by_name.get(name) is pull:
            del self._by_name[name]
            pull.abort()

    def stop(self) -> None:
        """Stop all downloads and refuse new ones."""
        self._stopping = True
        for task in self._unattended.values():
            task.cancel()
        for pull, place in self._threads.items():
            pull.abort()
            place.release()

    def _forget(self, name: str, pull: Pull) -> None:
        self._threads.pop(pull).release()
        if self._by_name.get(name) is pull:
            del self._by_name[name]


def _client_error(error: Exception) -> Exception:
    """Return an error for clients; errors of a model's source are not errors of this server."""
    if isinstance(error, pumice.UnknownModelError):
        return HTTPException(404, without_folders(str(error)))
    return HTTPException(502, str(error)) if isinstance(error, pumice.HubError) else error
