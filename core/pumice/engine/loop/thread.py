"""The thread that owns an engine: takes commands, and emits a list of events per step. Only it uses the engine."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from pumice.clients import failure_of
from pumice.engine.loop.engine import Engine
from pumice.engine.messages import (
    DEFAULT_TERMS,
    Add,
    Cancel,
    Close,
    Command,
    Encode,
    EndReasoning,
    Event,
    Failed,
    Inspect,
    Inspected,
    PromptSaved,
    ReadLayers,
    Request,
    SavePrompt,
    Score,
    Terms,
)
from pumice.engine.requests.generation import Generation
from pumice.engine.requests.prepare import Preparer
from pumice.engine.requests.reading import ReadRequest, with_future
from pumice.errors import EngineError, ModelClosedError, QueueFullError, RequestTimeoutError
from pumice.guard import describe

T = TypeVar("T")


@dataclass
class EngineTask:
    """Work on the engine beyond messages: a generator, advanced once between two steps, up to its ``timeout``."""

    turns: Generator[None, None, Any]
    future: Future[Any]
    id: int | None = None  # of its command
    timeout: float | None = None
    arrived: float = field(default_factory=time.perf_counter)

    def check_time(self) -> None:
        """Raise RequestTimeoutError after the timeout."""
        if self.timeout is not None and time.perf_counter() >= self.arrived + self.timeout:
            raise RequestTimeoutError(self.timeout)


Item = Command | list[Generation] | ReadRequest[Any] | EngineTask


class EngineThread:
    """Runs an engine until it is closed.

    Args:
        prepare: returns the jobs of a command, and raises RequestError for an invalid one. It is called in the sending
            thread, so that neither its errors nor its time affect the engine.
        emit: called with the events of each step, in the engine's thread.
        release: called last in the engine's thread, to release its resources.
        max_queue: maximum number of waiting requests of every kind, those in preparation included; None is unlimited.
    """

    def __init__(
        self,
        engine: Engine,
        prepare: Preparer,
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
        self._inbox: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._tasks: deque[EngineTask] = deque()
        self._sending = threading.RLock()  # the garbage collector may call `cancel` while its thread sends
        self._ended = False
        self._n_coming = 0  # accepted requests that the engine has not queued yet, and prompts to save
        self._own_ids = itertools.count(-1, -1)  # of requests without a command
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="pumice-engine", daemon=True)
        self._thread.start()

    def send(self, command: Command) -> None:
        """Send a command to the engine.

        Raises RequestError for an invalid command, QueueFullError if it can be tried again later, and ModelClosedError
        if the model is closed.
        """
        if isinstance(command, (Add, Encode, Score, ReadLayers)):
            with self._accepting(len(command.ids) if isinstance(command, Add) else 1):
                self._put(self._prepare(command))
        elif isinstance(command, SavePrompt):
            with self._accepting(1):
                self._put(self._saving(command, self._prepare.salt(command)))
        else:
            self._put(command)

    @contextlib.contextmanager
    def _accepting(self, n: int) -> Iterator[None]:
        """Count requests as waiting from now on, until the engine queues them. Raises QueueFullError."""
        with self._sending:
            n_queued = self._engine.n_requests + self._n_coming - self._engine.limits.n_seqs
            if self._max_queue is not None and n_queued + n > self._max_queue:
                raise QueueFullError(max(0, n_queued), self._max_queue)
            self._n_coming += n
        try:
            yield
        except BaseException:
            self._arrived(n)
            raise

    def _arrived(self, n: int) -> None:
        with self._sending:
            self._n_coming -= n

    def rehearse(self) -> None:
        """Prepare a request and drop it: tokenizer and samplers are then made before the first one arrives."""
        with contextlib.suppress(Exception):  # a request that fails for the same reason gets the error
            self._prepare(Add([0], Request(prompt=[0])))

    def ask(self, readings: Callable[[ReadRequest[T]], None], terms: Terms) -> Future[list[T]]:
        """Return the values of a request's readings, which ``readings`` adds to it.

        Cancelling the future cancels the request. Raises QueueFullError, ModelClosedError, and what ``readings`` does.
        """
        future: Future[list[T]] = Future()
        request = with_future(next(self._own_ids), future, terms)
        with self._accepting(1):
            readings(request)
            self._put(request)

        def ended(future: Future[list[T]]) -> None:
            with contextlib.suppress(ModelClosedError):
                if future.cancelled():
                    self._put(Cancel(request.id))

        future.add_done_callback(ended)
        return future

    def read(self, readings: Callable[[ReadRequest[T]], None], terms: Terms = DEFAULT_TERMS) -> list[T]:
        """Return the result of ``ask``."""
        return _result(self.ask(readings, terms))

    def call(self, turns: Callable[[Engine], Generator[None, None, T]]) -> T:
        """Return the result of a generator, which has exclusive use of the engine at each of its turns."""
        future: Future[T] = Future()
        self._put(EngineTask(turns(self._engine), future))
        return _result(future)

    def close(self) -> None:
        """Cancel everything, and wait for the end. Does nothing a second time, or in a forked process."""
        if self._process != os.getpid():
            return
        with contextlib.suppress(ModelClosedError):
            self._put(Close())
        if threading.current_thread() is not self._thread:  # the garbage collector may close it from that thread
            self._thread.join()

    def join(self) -> None:
        """Wait until the engine ends because it was closed or failed."""
        self._thread.join()

    def _put(self, item: Item) -> None:
        if self._process != os.getpid():
            raise ModelClosedError(
                "this model was loaded before the process was forked; load it again in the new process"
            )
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
                    self._step()
                if self._tasks:
                    self._take_turn(self._tasks[0])
                if self._tasks or not self._engine.tells_later:
                    self._tell()
        except Exception as defect:  # a plugin's policy, for example: nobody knows whose request it was
            error = defect
        finally:
            self._end(error)

    def _step(self) -> None:
        try:
            self._engine.step()
        except Exception as error:  # of a plugin's policy, for example: it is not known whose request it was
            self._engine.fail(error)
        except BaseException as error:  # a panic of a library in Rust, for example
            self._engine.fail(EngineError(f"the engine failed: {describe(error)}"))

    def _obey(self) -> bool:
        """Execute sent commands in order, waiting for them if there is nothing else to do. Return False to close."""
        idle = not self._engine.busy and not self._tasks
        while not self._inbox.empty() or idle:
            item = self._inbox.get()
            idle = False
            if isinstance(item, Close):
                return False
            if isinstance(item, list):
                for generation in item:
                    self._engine.add(generation)
                self._arrived(len(item))
            elif isinstance(item, ReadRequest):
                self._engine.read(item)
                self._arrived(1)
            elif isinstance(item, EngineTask):
                self._tasks.append(item)
            elif isinstance(item, Cancel):
                self._engine.cancel(item.id)
                for task in self._tasks:
                    if task.id == item.id:
                        task.future.cancel()
            elif isinstance(item, EndReasoning):
                self._engine.end_reasoning(item.id)
            elif isinstance(item, Inspect):
                self.emit([Inspected(item.id, self._engine.snapshot())])
        return True

    def _saving(self, command: SavePrompt, salt: bytes) -> EngineTask:
        """Return the work of saving a prompt with the salt of its blocks, whose result is an event."""

        def tell(future: Future[int]) -> None:
            self._arrived(1)
            error = failure_of(future)
            self.emit([Failed(command.id, error) if error else PromptSaved(command.id, future.result())])

        future: Future[int] = Future()
        future.add_done_callback(tell)
        return EngineTask(self._engine.save(command.tokens, salt), future, command.id, command.terms.timeout)

    def _take_turn(self, task: EngineTask) -> None:
        if not task.future.cancelled():
            try:
                task.check_time()
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
        """End everything that waits: sequences are cancelled, and later commands fail."""
        with self._sending:
            self._ended = True
        try:
            while not self._inbox.empty():
                item = self._inbox.get()
                if isinstance(item, EngineTask):
                    self._tasks.append(item)
                elif isinstance(item, list):
                    self.emit([Failed(generation.id, error) for generation in item])
                elif isinstance(item, ReadRequest):
                    self.emit(item.end_with(error))
                elif isinstance(item, Inspect):
                    self.emit([Failed(item.id, error)])
            for task in self._tasks:
                task.turns.close()
                with contextlib.suppress(InvalidStateError):
                    task.future.set_exception(error)
            self._engine.end(error)
            self._tell()
            self._engine.close()
        finally:
            self._release()


def _result(future: Future[T]) -> T:
    """Return the result of a future; an exception such as KeyboardInterrupt cancels it."""
    try:
        return future.result()
    finally:
        future.cancel()
