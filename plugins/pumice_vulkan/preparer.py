"""The preparer: a thread that prepares buckets during generation, so that no step waits for compilation.

Lowering is Python code and takes turns with the engine's thread; compilation in the driver runs concurrently.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from pumice.plugin import BackendError
from pumice_vulkan.buckets import Bucket

Work = Callable[[], object]

logger = logging.getLogger("pumice")

PAUSE_SECONDS = 50e-6  # pause between pieces of Python code, which lets waiting threads run
LATE_SECONDS = 1e-3  # delay of a pause that shows that another thread is busy
QUICK_SECONDS = 0.1  # of a bucket whose pipelines are on disk; without them it takes up to a second
GIVING_WAY = 4  # length of the next pause, as a multiple of that delay


class Preparer:
    """Prepares buckets in a given order until all are done, or until it is closed.

    Args:
        buckets: the order of preparation.
        pieces: yields the work for a bucket in order.
        done: called at the end.
        n_needed: number of first buckets that ``wait`` waits for, if they are prepared quickly; default: all. Where
            pipelines are compiled for the first time, a step would wait for its own bucket for long.

    Errors are logged; the step that needs the bucket raises them.
    """

    def __init__(
        self,
        buckets: Iterable[Bucket],
        pieces: Callable[[Bucket], Iterator[Work]],
        done: Callable[[], None] = lambda: None,
        n_needed: int | None = None,
    ) -> None:
        self.ready: set[Bucket] = set()
        self._buckets = list(buckets)
        self._pieces = pieces
        self._done = done
        self._closing = False
        self._n_needed = len(self._buckets) if n_needed is None else n_needed
        self._needed = threading.Event()  # set once the needed buckets are prepared, or cannot be
        self._awaited = False  # nothing else is done until then
        self._thread = threading.Thread(target=self._run, name="pumice-vulkan-preparer")

    def start(self) -> None:
        """Start, if the system allows another thread; without it each step compiles its own pipelines."""
        try:
            self._thread.start()
        except RuntimeError as error:
            logger.info("cannot prepare steps: %s", error)

    def wait(self) -> None:
        """Wait until the needed buckets are prepared, without pauses for other threads meanwhile."""
        if self._thread.ident is not None:
            self._awaited = True
            self._needed.wait()
            self._awaited = False

    def join(self) -> None:
        """Wait until all buckets are prepared."""
        if self._thread.ident is not None:
            self._thread.join()

    def close(self) -> None:
        """Stop after the current work."""
        self._closing = True
        self.join()

    @property
    def is_busy(self) -> bool:
        """True while the thread prepares buckets."""
        return self._thread.is_alive()

    @property
    def ends(self) -> bool:
        """Return True if the preparer is closed, or if the main thread has ended without closing it."""
        return self._closing or not threading.main_thread().is_alive()

    def _run(self) -> None:
        try:
            self._prepare_all()
        finally:
            self._needed.set()

    def _prepare_all(self) -> None:
        began = time.monotonic()
        for number, bucket in enumerate(self._buckets):
            if number == self._n_needed and time.monotonic() - began < self._n_needed * QUICK_SECONDS:
                self._needed.set()
            try:
                if self._prepare(bucket):
                    self.ready.add(bucket)
            except Exception as error:
                if not self.ends:  # else the interpreter starts no thread any more
                    logger.info("cannot prepare steps of %d tokens: %s", bucket.n_tokens, _described(error))
            if self.ends:
                return
        try:
            self._done()
        except Exception as error:
            logger.info("cannot keep what was prepared: %s", _described(error))

    def _prepare(self, bucket: Bucket) -> bool:
        for work in self._pieces(bucket):
            if self.ends:
                return False
            work()
            self._pause()
        return True

    def _pause(self) -> None:
        """Let other threads run; longer if they are busy, as during the first generation of a process.

        A pause takes 1 ms where a system's timers are coarse, and there are some 20 for each bucket.
        """
        if self._awaited:
            return
        began = time.perf_counter()
        time.sleep(PAUSE_SECONDS)
        waited = time.perf_counter() - began
        if waited > LATE_SECONDS and not self.ends:
            time.sleep(GIVING_WAY * waited)


def _described(error: Exception) -> str:
    return str(error) if isinstance(error, BackendError) else f"{type(error).__name__}: {error}"
