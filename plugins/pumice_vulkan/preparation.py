"""What a program compiles and records beside requests, so that no step waits for a driver."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial

from pumice.plugin import BackendError
from pumice_vulkan.buckets import Bucket, Buckets
from pumice_vulkan.host_memory import N_TURNS
from pumice_vulkan.lower.rule import Dispatch, StateUse
from pumice_vulkan.lowered import LoweredSegment
from pumice_vulkan.persistent import PersistentPath
from pumice_vulkan.preparer import Preparer, Work
from pumice_vulkan.recorder import USUAL_CHOICES, Recorder, Recording, drafted_choices, restricted_choices
from pumice_vulkan.step import MAX_DRAFTED

logger = logging.getLogger("pumice")


class Preparation:
    """Prepares the steps of a program in threads: of all buckets, with drafts on demand, and in one dispatch.

    Args:
        buckets: sizes of steps.
        lowered: their dispatches.
        recorder: records their command buffers.
        path: steps in one dispatch; None without them.
        drafting: buckets of steps with drafts.
        picks: True if the program picks tokens.
        takes: True if a step may take the tokens of one that still runs.
    """

    def __init__(
        self,
        buckets: Buckets,
        lowered: LoweredSegment,
        recorder: Recorder,
        path: PersistentPath | None,
        drafting: Sequence[Bucket],
        *,
        picks: bool,
        takes: bool,
    ) -> None:
        self._shared = shared = lowered.shared
        self._buckets = buckets
        self._lowered = lowered
        self._recorder = recorder
        self._path = path
        self._takes = takes
        most_rows = path.most_rows if path else 1
        served = [bucket for bucket in buckets.served if picks and bucket.n_tokens > most_rows]
        keep = shared.device.keep_pipelines
        self._steps = Preparer([*buckets.likely, *served], self._pieces, keep, buckets.n_needed)
        self._drafts = Preparer(reversed(drafting), self._draft_pieces, keep)
        self._rows: Preparer | None = None  # of steps of several tokens in one dispatch
        self._lone: Preparer | None = None  # of single tokens in one dispatch
        if shared.prepares:
            self._start(self._steps)
            if path and not shared.device.knows_pipelines:
                self._lone = self._compiled_beside([1])

    @property
    def ready(self) -> set[Bucket] | None:
        """The buckets whose steps are prepared; None if none is prepared ahead."""
        return self._steps.ready if self._shared.prepares else None

    def wait(self) -> None:
        """Wait until the steps are prepared that the first requests need."""
        if self._shared.prepares and self._path:
            self._path.works()  # beside the preparers: its pipeline takes the driver a while
        self._steps.wait()
        self._drafts.wait()
        self._start_rows()

    def join(self) -> None:
        """Wait until all steps but those with drafts are prepared."""
        for preparer in (self._steps, self._lone, self._rows):
            if preparer is not None:
                preparer.join()

    def prepare_drafts(self) -> None:
        """Begin to prepare steps with drafts."""
        if self._shared.prepares and self._drafts not in self._shared.preparers:
            self._start(self._drafts)

    @property
    def prepares_drafts(self) -> bool:
        return self._drafts.is_busy

    def close(self) -> None:
        for preparer in (self._steps, self._drafts, self._rows, self._lone):
            if preparer is not None:
                preparer.close()

    def is_one_dispatch(self, n_tokens: int) -> bool:
        """Return True if a step is one dispatch.

        One of several tokens is not until its pipeline is compiled, nor one token in the first process of a device.
        """
        if not self._path or n_tokens > self._path.most_rows:
            return False
        preparer = self._lone
        if n_tokens > 1 and self._shared.prepares:
            self._start_rows()
            preparer = self._rows
        if preparer is not None and Bucket(n_tokens, n_tokens) not in preparer.ready:
            return False
        return self._path.works(n_tokens)

    def _start_rows(self) -> None:
        """Begin to compile steps of several tokens in one dispatch, beside requests: a driver takes seconds for one."""
        if self._rows or not self._path or not self._shared.prepares:
            return
        most_rows = self._path.most_rows
        sizes = sorted({n for bucket in self._buckets.all if 1 < (n := bucket.n_tokens) <= most_rows})
        self._rows = self._compiled_beside(sizes)

    def _compiled_beside(self, sizes: Sequence[int]) -> Preparer:
        """Return a started preparer that compiles steps of these numbers of tokens in one dispatch."""
        assert self._path is not None
        probing: dict[Bucket, Dispatch] = {}
        try:
            with self._shared.making:  # tables are uploaded here, since threads that prepare must not
                probing |= {Bucket(n, n): dispatch for n in sizes if (dispatch := self._path.probing(n))}
                self._shared.weights.finish()
        except BackendError as error:
            logger.info("vulkan: steps in one dispatch take several: %s", error)

        def pieces(bucket: Bucket) -> Iterator[Work]:
            yield partial(self._shared.kernels.pipeline, probing[bucket])

        preparer = Preparer(probing, pieces, self._shared.device.keep_pipelines)
        self._start(preparer)
        return preparer

    def _start(self, preparer: Preparer) -> None:
        self._shared.preparers.add(preparer)
        preparer.start()

    def _pieces(self, bucket: Bucket) -> Iterator[Work]:
        """Yield the work that prepares a bucket: its dispatches, their pipelines, and a command buffer.

        The second time command buffers with the common picks of one token, so that no stream waits for them; for the
        largest steps also those behind a step, whose tokens they may take.
        """
        if bucket in self._steps.ready:
            recordings = [Recording(bucket, 1, choice) for choice in USUAL_CHOICES[:3]]
            if self._takes and bucket == self._buckets.all[-1]:
                taking = [item._replace(turn=turn, takes=True) for item in recordings for turn in range(N_TURNS)]
                recordings += [*(item._replace(turn=1) for item in recordings), *taking]
            for recording in recordings:
                yield partial(self._recorder.prepare, recording)
            return
        yield from self._lowered.pieces(bucket)
        with self._shared.making:
            dispatches = [*self._lowered.dispatches(bucket), *self._recorder.choices(bucket, USUAL_CHOICES)]
        yield partial(self._shared.kernels.compile, dispatches, lambda: self._steps.ends)
        yield partial(self._recorder.prepare, Recording(bucket))

    def _draft_pieces(self, bucket: Bucket) -> Iterator[Work]:
        """Yield the work that prepares steps with drafts: their pipelines, and command buffers."""
        use = StateUse.KEEP if self._lowered.recurrent else StateUse.ADVANCE
        yield from self._lowered.pieces(bucket, use)
        most_rows = min(bucket.n_tokens, MAX_DRAFTED)
        numbers = [1 << i for i in range(1, most_rows.bit_length())]  # rows of a sequence
        choices = [choice for n_rows in numbers for choice in drafted_choices(n_rows)]
        with self._shared.making:
            dispatches = [*self._lowered.dispatches(bucket, use), *self._recorder.choices(bucket, choices)]
        yield partial(self._shared.kernels.compile, dispatches, lambda: self._drafts.ends)
        if bucket.n_tokens == most_rows:
            for choice in (*drafted_choices(most_rows), *restricted_choices(most_rows)):
                yield partial(self._recorder.prepare, Recording(bucket, 1, choice))
        raw = [choice._replace(raw=True) for choice in choices]
        yield partial(self._shared.kernels.compile, self._recorder.choices(bucket, raw), lambda: self._drafts.ends)
