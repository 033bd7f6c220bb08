"""Programs of segments: calls that name their plugin in errors, checked results, and pipelines of several programs.

Pipeline parallelism: programs of consecutive segments, one per device, compute steps one after the other.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from pumice.backend import CacheForm, KernelTime, Program
from pumice.backend.pick import Ahead, Ask
from pumice.backend.step import Batch, Pending, Step
from pumice.errors import PluginError, PumiceError
from pumice.graph import Segment, Tensor, concrete
from pumice.guard import UNEXPECTED, raise_named

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pumice.backend.contract import Array
    from pumice.backend.pick import Restriction

    Bytes = NDArray[np.uint8]
    Outputs = Mapping[str, Array]

logger = logging.getLogger("pumice")

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K")

PREPARED = 2  # programs whose steps are submitted while one computes: often one of the host, and the next of a device
_DTYPES = {"f32": np.dtype(np.float32), "i32": np.dtype(np.int32)}
MAX_STEPS = 16  # consecutive steps, whose tokens the host sees only at the end


class SegmentProgram:
    """The program of a segment, whose steps are checked.

    Args:
        program: the program.
        where: the backend and its plugin, for messages; empty: a program that is no plugin's, and is not checked.
        outputs: outputs of the segment.
    """

    def __init__(self, program: Program, where: str = "", outputs: Sequence[Tensor] = ()) -> None:
        if where and not isinstance(program, Program):
            raise PluginError(f"{where}: compile: expected a Program, not {program!r}")
        self.program = program
        self._where = where
        plain = type(program).submit is Program.submit
        self._step_where = where and f"{where}: {'run' if plain else 'submit'}"
        self._expected = [(tensor, _fixed(tensor)) for tensor in outputs] if where else []

    def submit(self, step: Step, receive: Callable[[Outputs], Outputs] | None = None) -> Pending:
        """Submit a step; ``receive`` gets its outputs, and returns those of the step to wait for."""
        try:
            pending = self.program.submit(step)
        except UNEXPECTED as error:
            raise_named(error, self._step_where)
        if not isinstance(pending, Pending):
            raise PluginError(f"{self._step_where}: expected a Pending, not {pending!r}")
        return _Step(pending, step, self._step_where, self._expected, receive)

    def call(self, method: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call another method of the program."""
        try:
            return method(*args, **kwargs)
        except UNEXPECTED as error:
            raise_named(error, self._where and f"{self._where}: {method.__name__}")

    def close(self) -> None:
        """Close the program; an error is logged, so that the others are closed, too."""
        try:
            self.call(self.program.close)
        except PumiceError as error:
            logger.warning("%s", error)

    @property
    def memory(self) -> dict[str, int]:
        """The program's allocated bytes by purpose."""
        try:
            return {str(purpose): int(size) for purpose, size in self.program.memory.items()}
        except UNEXPECTED as error:
            raise_named(error, self._where and f"{self._where}: memory")


class _Step(Pending):
    """A submitted step of a program: the only wrapper of a plugin's ``Pending``."""

    def __init__(
        self,
        pending: Pending,
        step: Step,
        where: str,
        expected: Sequence[tuple[Tensor, Sequence[tuple[int, int]]]],
        receive: Callable[[Outputs], Outputs] | None,
    ) -> None:
        self._pending = pending
        self._sizes = step.batch.sizes if expected else {}
        self._where = where
        self._expected = expected
        self._receive = receive

    def begin(self, inputs: Mapping[str, Array]) -> None:
        try:
            self._pending.begin(inputs)
        except UNEXPECTED as error:
            raise_named(error, self._where)

    def restrict(self, restrictions: Sequence[Restriction]) -> None:
        try:
            self._pending.restrict(restrictions)
        except UNEXPECTED as error:
            raise_named(error, self._where)

    def outputs(self) -> Outputs:
        try:
            outputs = self._pending.outputs()
        except UNEXPECTED as error:
            raise_named(error, self._where)
        self._check(outputs)
        return self._receive(outputs) if self._receive else outputs

    def tokens(self) -> Iterator[Ahead]:
        try:
            yield from self._pending.tokens()
        except UNEXPECTED as error:
            raise_named(error, self._where)

    def _check(self, outputs: object) -> None:
        """Raise PluginError unless there is an array of the right shape and dtype for each output."""
        for tensor, fixed in self._expected:
            value = outputs.get(tensor.name) if isinstance(outputs, (dict, Mapping)) else None
            shape = getattr(value, "shape", None)
            if shape is None:
                raise PluginError(f"{self._where}: returned no array for {tensor}")
            wrong = len(shape) != len(tensor.shape) or any(shape[axis] != n for axis, n in fixed)
            if wrong or any(n < self._sizes.get(str(dim), 0) for n, dim in zip(shape, tensor.shape, strict=True)):
                raise PluginError(f"{self._where}: returned an array of shape {list(shape)} for {tensor}")
            if isinstance(value, np.ndarray) and value.dtype != _DTYPES[tensor.dtype]:
                raise PluginError(f"{self._where}: returned {value.dtype}, not {_DTYPES[tensor.dtype]}, for {tensor}")


def _fixed(tensor: Tensor) -> list[tuple[int, int]]:
    """Return the axes of a tensor whose sizes do not depend on the step, and these sizes."""
    return [(axis, n) for axis, n in enumerate(tensor.shape) if isinstance(n, int)]


@dataclass(eq=False)
class _Stay:
    """A batch that passes through the programs."""

    values: dict[str, Array]
    batch: Batch
    pending: Pending | None = None  # results that a program has not returned yet
    kept: frozenset[str] = frozenset()  # results that are used after the next program

    def collect(self) -> None:
        """Wait for the program and copy its results, which its next run overwrites."""
        if self.pending is not None:
            results, self.pending = self.pending.outputs(), None
            self.values |= {name: array.copy() if name in self.kept else array for name, array in results.items()}


class _Picking(Pending):
    """Steps whose tokens are computed one by one on demand."""

    def __init__(self, tokens: Iterator[Ahead]) -> None:
        self._tokens = tokens

    def tokens(self) -> Iterator[Ahead]:
        return self._tokens


class _Prepared:
    """Steps of consecutive programs, a few of which are submitted ahead: a device computes while the host prepares."""

    def __init__(self, submits: Iterable[Callable[[], Pending]]) -> None:
        self._left = deque(submits)
        self._ahead: deque[Pending] = deque()
        self.prepare()

    def prepare(self) -> None:
        """Submit the next steps, each of which waits for its values."""
        while self._left and len(self._ahead) < PREPARED:
            self._ahead.append(self._left.popleft()())

    def others(self) -> Iterator[Pending]:
        """Yield all steps but the last."""
        while len(self._ahead) > 1 or self._left:
            yield self._ahead.popleft()
            self.prepare()

    def last(self) -> Pending:
        return self._ahead.popleft()


def _like_before(batch: Batch, before: Batch | None) -> Batch:
    """Return the batch with the arrays of the one before, if it differs from that in tokens and positions only.

    Programs upload an array once.
    """
    if before is None or not _is_like(batch, before):
        return batch
    return replace(
        batch,
        output_ids=before.output_ids,
        seq_starts=before.seq_starts,
        slots=before.slots,
        block_tables=before.block_tables,
    )


def _is_like(batch: Batch, other: Batch) -> bool:
    """Return True if batches differ in tokens and positions only."""
    if batch.inputs or other.inputs or batch.memory or other.memory or batch.sizes != other.sizes:
        return False
    if (batch.exact, batch.together) != (other.exact, other.together):
        return False
    pairs = [(getattr(batch, name), getattr(other, name)) for name in ("output_ids", "seq_starts", "slots")]
    pairs += [(table, other.block_tables[window]) for window, table in batch.block_tables.items()]
    return all(array is before or np.array_equal(array, before) for array, before in pairs)


class Pipeline(Program):
    """The programs of a graph's segments, in order. Values pass from one to the next through the host.

    A step without outputs, in the middle of a long prompt, is released when the first program has computed it. The
    other programs compute it while the first one computes the next step. All programs compute the steps in order.

    ``inputs_of`` returns the graph's inputs for a batch.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        programs: Sequence[SegmentProgram],
        inputs_of: Callable[[Batch], Mapping[str, Array]],
    ) -> None:
        self._programs = programs
        self._logits = segments[-1].outputs[-1]
        self._inputs_of = inputs_of
        self._lost = False
        self._kept = [_used_later(segments, i) for i in range(len(segments))]
        self._at: list[_Stay | None] = [None] * len(programs)  # the current step of each program
        self._before: Batch | None = None  # of the latest steps with picked tokens
        self._stateful = [program for segment, program in zip(segments, programs, strict=True) if segment.states]
        n_devices = len({(segment.backend, segment.device) for segment in segments})
        self._lets_go = segments[-1].gives_logits and n_devices == len(segments)
        last = programs[-1].program.capabilities
        n_steps = MAX_STEPS if last.max_steps else 0
        self.capabilities = replace(
            last,
            max_steps=n_steps,
            copies_slots=False,
            invariant=all(part.program.capabilities.invariant for part in programs),
            n_in_flight=1,
            registers=False,
        )

    def run(self, step: Step) -> Mapping[str, Array]:
        stay = _Stay(dict(step.inputs), step.batch)
        with self._losing(stay):
            self._advance(stay)
            if self._lets_go and len(step.batch.output_ids) == 0:
                return {self._logits.name: np.empty(concrete(self._logits.shape, step.batch.sizes), np.float32)}
            while self._at[-1] is not stay:
                self._advance(None)
            stay.collect()
            self._at[-1] = None
        return stay.values

    def submit(self, step: Step) -> Pending:
        return _Picking(self._pick(step, step.ask)) if step.ask else super().submit(step)

    @contextmanager
    def _losing(self, stay: _Stay | None = None) -> Iterator[None]:
        """Record if an error affects more than this step."""
        self._lost = False
        try:
            yield
        except BaseException:
            self._lost = any(other not in (None, stay) for other in self._at)
            self._at = [None] * len(self._programs)
            raise

    @property
    def lost(self) -> bool:
        return self._lost

    def finish(self) -> None:
        with self._losing():
            while any(stay is not None for stay in self._at):
                self._advance(None)

    def _advance(self, entering: _Stay | None) -> None:
        """Advance every step to the next program, all of which run concurrently; wait only for the first one."""
        for stay in self._at:
            if stay is not None:
                stay.collect()
        for i in reversed(range(len(self._programs))):  # results are read before a program runs again
            stay = self._at[i] = self._at[i - 1] if i else entering
            if stay is not None:
                stay.pending, stay.kept = self._programs[i].submit(Step(stay.batch, stay.values)), self._kept[i]
        if entering is not None:
            entering.collect()

    def _pick(self, step: Step, ask: Ask) -> Iterator[Ahead]:
        """The last program picks each token, and the first one continues with it before it is reported."""
        self.finish()
        last = self._programs[-1]
        before = range(len(self._programs) - 1)
        batch = self._before = _like_before(step.batch, self._before)
        values, pasts = dict(step.inputs), ask.pasts
        pending = self._programs[0].submit(Step(batch, values)) if before else None
        for n_left, drawn in zip(range(len(ask.numbers))[::-1], ask.numbers[:, None], strict=True):
            picked = Step(batch, ask=replace(ask, numbers=drawn, pasts=pasts), waits=True)
            waiting = Step(batch, waits=True)
            others = [partial(self._programs[index].submit, waiting) for index in before[1:]]
            rest = _Prepared([*others, partial(last.submit, picked)])
            if pending:
                values |= pending.outputs()
            for other in rest.others():
                other.begin(values)
                rest.prepare()
                values |= other.outputs()
            picking = rest.last()
            picking.begin(values)
            batch = replace(batch, positions=batch.positions + 1)
            following = dict(self._inputs_of(batch)) if n_left else {}
            beginning = self._programs[0].submit(Step(batch, waits=True)) if before and n_left else None
            ahead = next(picking.tokens())
            if n_left:
                values = following | {"tokens": ahead.picked[0]}
                if beginning:
                    beginning.begin(values)
                pending = beginning
                batch.tokens = ahead.picked[0]
                pasts = [[*past, token] for past, token in zip(pasts, ahead.picked[0].tolist(), strict=False)]
            yield ahead

    def wait_until_prepared(self) -> None:
        for part in self._programs:
            part.call(part.program.wait_until_prepared)

    def wait_until_settled(self) -> None:
        for part in self._programs:
            part.call(part.program.wait_until_settled)

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.finish()
        for part in self._programs:
            if part.program.capabilities.copies_slots:
                part.call(part.program.copy_slots, pairs)

    @property
    def cache_form(self) -> CacheForm | None:
        forms = [form for part in self._stateful if (form := part.program.cache_form)]
        if len(forms) < len(self._stateful):
            return None
        computed_by = "; ".join(form.computed_by for form in forms)
        return CacheForm(
            summed(form.block_bytes for form in forms), sum(form.slot_bytes for form in forms), computed_by
        )

    def read_blocks(self, window: int, blocks: Sequence[int]) -> Bytes:
        self.finish()
        read = [part.call(part.program.read_blocks, window, blocks) for part, _ in self._parts(window)]
        return np.concatenate(read, axis=1)

    def write_blocks(self, window: int, blocks: Sequence[int], data: Bytes) -> None:
        self.finish()
        for part, columns in self._parts(window):
            part.call(part.program.write_blocks, window, blocks, np.ascontiguousarray(data[:, columns]))

    def read_slots(self, slots: Sequence[int]) -> Bytes:
        self.finish()
        return np.concatenate([part.call(part.program.read_slots, slots) for part, _ in self._parts(None)], axis=1)

    def write_slots(self, slots: Sequence[int], data: Bytes) -> None:
        self.finish()
        for part, columns in self._parts(None):
            part.call(part.program.write_slots, slots, np.ascontiguousarray(data[:, columns]))

    def _parts(self, window: int | None) -> Iterator[tuple[SegmentProgram, slice]]:
        """Yield the programs that have blocks of a window, or slots for None, and the columns of their bytes."""
        end = 0
        for part in self._stateful:
            form = part.program.cache_form
            assert form is not None
            size = form.slot_bytes if window is None else form.block_bytes.get(window, 0)
            if size:
                begin, end = end, end + size
                yield part, slice(begin, end)

    @property
    def memory(self) -> dict[str, int]:
        return summed(part.memory for part in self._programs)

    @property
    def host_weights(self) -> Sequence[NDArray[Any]]:
        return [array for part in self._programs for array in part.program.host_weights]

    def profile(self) -> list[KernelTime]:
        self.finish()
        return [kernel for part in self._programs for kernel in part.call(part.program.profile)]

    def close(self) -> None:
        self._at = [None] * len(self._programs)
        for part in self._programs:
            part.close()


def summed(numbers: Iterable[Mapping[K, int]]) -> dict[K, int]:
    """Return the sums of numbers by their keys."""
    sums: Counter[K] = Counter()
    for part in numbers:
        sums.update(part)
    return dict(sums)


def _used_later(segments: Sequence[Segment], i: int) -> frozenset[str]:
    """Return the outputs of segment ``i`` that are used after the next segment."""
    taken = {tensor for segment in segments[i + 2 :] for tensor in segment.inputs}
    return frozenset(tensor.name for tensor in segments[i].outputs if tensor in taken)
