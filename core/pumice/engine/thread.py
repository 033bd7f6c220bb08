"""The thread that owns an engine: commands in, events out, a list of them a step. Nothing else may touch the engine."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pumice.engine import lone
from pumice.engine.engine import Engine
from pumice.engine.generation import Generation
from pumice.engine.messages import (
    Add,
    Answer,
    Ask,
    Cancel,
    Close,
    Command,
    Encode,
    Event,
    Failed,
    Logprobs,
    Request,
    Score,
    Scored,
)
from pumice.errors import ModelClosedError, QueueFullError, RequestError

T = TypeVar("T")


@dataclass
class Task:
    """Work on the engine that no message describes, done a turn of the generator at a time between two steps."""

    turns: Generator[None, None, Any]
    future: Future[Any]
    id: int | None = None  # of the command that asked for it


class EngineThread:
    """Runs an engine until it is closed.

    Args:
        prepare: makes generations of ids and a request. It is called in the thread that sends, so that neither
            its errors nor its time are the engine's.
        emit: gets the events of each step, in the engine's thread.
        release: called last, in the engine's thread: gives back what the engine ran on.
        max_queue: most requests that may wait; None: any number.
    """

    def __init__(
        self,
        engine: Engine,
        prepare: Callable[[Sequence[int], Request], list[Generation]],
        emit: Callable[[list[Event]], None],
        release: Callable[[], None] = lambda: None,
        max_queue: int | None = None,
    ) -> None:
        self._engine = engine
        engine.tell = self._tell
        self._prepare = prepare
        self.emit = emit
        self._release = release
        self._max_queue = max_queue
        self._inbox: queue.SimpleQueue[Command | Generation | Task] = queue.SimpleQueue()
        self._tasks: deque[Task] = deque()
        self._sending = threading.RLock()  # a garbage collector's `cancel` may come while its thread sends
        self._ended = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="pumice-engine", daemon=True)
        self._thread.start()

    def send(self, command: Command) -> None:
        """Give the engine a command.

        Raises RequestError where it is refused, QueueFullError where it may be tried again, ModelClosedError where all
        are refused.
        """
        if not isinstance(command, Add):
            self._put(command)
            return
        n_queued = self._engine.n_queued + self._inbox.qsize()
        if self._max_queue is not None and n_queued + len(command.ids) > self._max_queue:
            raise QueueFullError(n_queued, self._max_queue)
        for generation in self._prepare(command.ids, command.request):
            self._put(generation)

    def call(self, turns: Callable[[Engine], Generator[None, None, T]]) -> T:
        """The result of a generator, which has the engine for itself at each of its turns."""
        future: Future[T] = Future()
        self._put(Task(turns(self._engine), future))
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel everything, and wait for the end. A second time, or in a forked process, nothing happens."""
        if self._process != os.getpid():
            return
        with contextlib.suppress(ModelClosedError):
            self._put(Close())
        if threading.current_thread() is not self._thread:  # a garbage collector may close it from there
            self._thread.join()

    def join(self) -> None:
        """Wait until the engine ends: because it was closed, or by a defect."""
        self._thread.join()

    def _put(self, item: Command | Generation | Task) -> None:
        if self._process != os.getpid():
            raise ModelClosedError("this model was loaded before the process was forked: load it in the new process")
        with self._sending:
            if self._ended:
                raise ModelClosedError("the model is closed")
            self._inbox.put(item)

    # --- in the engine's thread

    def _run(self) -> None:
        error: Exception = ModelClosedError("the model was closed")
        try:
            while self._obey():
                if self._engine.busy:
                    self._engine.step()
                if self._tasks:
                    self._take_turn(self._tasks[0])
                self._tell()
        except Exception as defect:
            self._engine.fail(defect)
            error = defect
        finally:
            self._end(error)

    def _obey(self) -> bool:
        """Do what was sent, in its order; with nothing else to do, wait for it. False: to close."""
        idle = not self._engine.busy and not self._tasks
        while not self._inbox.empty() or idle:
            item = self._inbox.get()
            idle = False
            if isinstance(item, Close):
                return False
            if isinstance(item, Generation):
                self._engine.add(item)
            elif isinstance(item, Task):
                self._tasks.append(item)
            elif isinstance(item, Encode):
                self._engine.encode(item)
            elif isinstance(item, Score):
                self._tasks.append(self._scoring(item))
            elif isinstance(item, Cancel):
                self._engine.cancel([item.id])
                for task in self._tasks:
                    if task.id == item.id:
                        task.future.cancel()
            elif isinstance(item, Ask):
                self.emit([Answer(item.id, self._engine.snapshot())])
        return True

    def _scoring(self, command: Score) -> Task:
        """Work whose result is an event."""

        def tell(future: Future[Sequence[Logprobs]]) -> None:
            error = RequestError("the request was cancelled") if future.cancelled() else future.exception()
            failed = Failed(command.id, error) if isinstance(error, Exception) else None
            self.emit([failed or Scored(command.id, future.result())])

        future: Future[Sequence[Logprobs]] = Future()
        future.add_done_callback(tell)
        return Task(lone.score(self._engine, command), future, command.id)

    def _take_turn(self, task: Task) -> None:
        if not task.future.cancelled():
            try:
                next(task.turns)
                return
            except StopIteration as end:
                finish = partial(task.future.set_result, end.value)
            except Exception as error:
                finish = partial(task.future.set_exception, error)
            with contextlib.suppress(InvalidStateError):  # cancelled meanwhile
                finish()
        task.turns.close()
        self._tasks.popleft()

    def _tell(self) -> None:
        events = self._engine.drain()
        if events:
            self.emit(events)

    def _end(self, error: Exception) -> None:
        """Nobody is left waiting: sequences end as cancelled, and what came too late fails."""
        with self._sending:
            self._ended = True
        try:
            while not self._inbox.empty():
                item = self._inbox.get()
                if isinstance(item, Task):
                    self._tasks.append(item)
                elif isinstance(item, (Generation, Encode, Score, Ask)):
                    self.emit([Failed(item.id, error)])
            for task in self._tasks:
                task.turns.close()
                with contextlib.suppress(InvalidStateError):
                    task.future.set_exception(error)
            self._engine.cancel()
            self._engine.encodings.fail(error)
            self._tell()
        finally:
            self._release()
