"""Command buffers of a program: recorded when first needed, and committed many times."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from pumice.plugin.unstable import Input, KernelTime, RecurrentState, State
from pumice_vulkan.buckets import Bucket, bucket_sizes
from pumice_vulkan.device import CommandBuffer, Device, Encoder, Launch
from pumice_vulkan.host_memory import N_TURNS, HostMemory
from pumice_vulkan.kernels import Kernels
from pumice_vulkan.lower.rule import Dispatch, Lowering, SegmentMemory, StateUse
from pumice_vulkan.passing import Copy
from pumice_vulkan.persistent import PersistentPath
from pumice_vulkan.picker import (
    MAX_BEST,
    NO_CHOICE,
    Choice,
    Picker,
    lower_later_positions,
    lower_taken,
    registers_of,
)

MOST_RECORDED = 256  # maximum cached command buffers of steps
MOST_COPIES = 64  # maximum cached command buffers that copy states


class RecordedPart(Enum):
    """The part of a step in a command buffer."""

    ALL = "layers and choice"
    LAYERS = "up to the logits"
    CHOICE = "behind the logits"


USUAL_CHOICES = (
    Choice(1),
    Choice(MAX_BEST),
    Choice(1, adjusts=True),
    *(Choice(n_best, adjusts=True, raw=True) for n_best in (1, MAX_BEST)),
)
"""The common choices, whose pipelines are compiled ahead."""


def restricted_choices(n_rows: int) -> list[Choice]:
    """Return the choices of steps with ``n_rows`` of each sequence, whose tokens have restrictions."""
    return [Choice(n_best, adjusts=True, restricted=True, drafted=n_rows) for n_best in (1, MAX_BEST)]


def drafted_choices(n_rows: int) -> list[Choice]:
    """Return the choices of steps with ``n_rows`` of each sequence, those that adjust no logits first."""
    return [Choice(n_best, adjusts, drafted=n_rows) for adjusts in (False, True) for n_best in (1, MAX_BEST)]


class Recording(NamedTuple):
    """The contents of a command buffer: one step, or ``n_steps`` in succession with token selection; or a part of it.

    ``follows``: start from the tokens of the previous steps; ``turn``: index of the host memory; ``persistent``: layers
    are one dispatch; ``restores``: repeat persistent steps, from the tokens that they began with;
    ``copies``: inputs that earlier steps computed; ``takes``: tokens or output rows are those of registers;
    ``relative``: positions, too; ``first_draft``: the draft that the first picked token becomes.
    """

    bucket: Bucket
    n_steps: int = 0
    choice: Choice = NO_CHOICE
    follows: bool = False
    turn: int = 0
    part: RecordedPart = RecordedPart.ALL
    persistent: bool = False
    restores: bool = False
    copies: tuple[Copy, ...] = ()
    takes: bool = False
    relative: bool = False
    first_draft: int | None = None


class Encoded(NamedTuple):
    """A launch of a step; ``barrier``: a barrier precedes it."""

    launch: Launch
    barrier: bool
    label: str


class Recorder:
    """Records the steps of a segment; ``lower`` returns the dispatches of a step for a bucket and its use of states.

    Only one thread commits; ``choices`` and ``prepare`` may be called from another one.
    """

    def __init__(
        self,
        memory: SegmentMemory,
        kernels: Kernels,
        host: HostMemory,
        lower: Callable[[Bucket, StateUse], list[Dispatch]],
        picker: Picker | None,
        making: threading.RLock,
        persistent: PersistentPath | None = None,
    ) -> None:
        self.last: Recording | None = None
        self._memory = memory
        self._kernels = kernels
        self._host = host
        self._lower = lower
        self._picker = picker
        self._recorded: dict[Recording, CommandBuffer] = {}
        self._latest: dict[Recording, None] = {}  # used recordings, the latest last
        self._known: dict[tuple[Bucket, StateUse, bool], list[Encoded]] = {}
        self._making = making
        self._persistent = persistent
        self._begun = Begun(memory) if persistent else None
        self._turns: list[Recording | None] = [None] * N_TURNS  # last user of each host memory

    def free(self, turn: int) -> None:
        """Wait until the device no longer uses the host memory ``turn``."""
        user = self._turns[turn]
        if user in self._recorded:  # otherwise it ended before it was freed
            self._recorded[user].wait()

    @property
    def other_turn(self) -> int:
        """Return the index of the host memory that the last step does not use."""
        return 1 - self.last.turn if self.last else 0

    def commit(self, recording: Recording) -> CommandBuffer:
        command = self.command(recording)
        command.commit()
        return command

    def command(self, recording: Recording) -> CommandBuffer:
        """Return the command buffer to commit next."""
        if recording not in self._recorded:
            self.prepare(recording)
        self.last = self._turns[recording.turn] = recording
        self._latest.pop(recording, None)
        self._latest[recording] = None
        if len(self._latest) > MOST_RECORDED:
            self._forget(next(iter(self._latest)))
        return self._recorded[recording]

    def choices(self, bucket: Bucket, choices: Iterable[Choice]) -> list[Dispatch]:
        """Return the dispatches of choices."""
        lowering = Lowering(self._memory, *bucket)
        if self._picker:
            lower_taken(lowering, relative=False)
            for choice in choices:
                self._picker.lower(lowering, 0, choice, 0)
        return lowering.dispatches

    def prepare(self, recording: Recording) -> None:
        """Record a command buffer, unless it exists. One thread at a time records, since Python runs only one."""
        dispatches = [] if recording.part is RecordedPart.CHOICE else self._dispatches(recording)
        behind = [*self._chosen(recording, 0), *self._settled(recording)]
        first = [*self._first_tokens(recording), *self._positions(recording)]
        self._kernels.compile([*first, *dispatches, *behind])
        with self._making:
            if recording in self._recorded:
                return
            command = self._memory.device.new_command_buffer()
            try:
                self._record(command.encoder(), recording)
            except BaseException:
                command.close()
                raise
            self._recorded[recording] = command

    def _forget(self, recording: Recording) -> None:
        """Free the command buffer of a recording that has ended; recordings that still run are among the latest."""
        del self._latest[recording]
        with self._making:
            self._recorded.pop(recording).close()

    def profile(self) -> list[KernelTime]:
        """Return the kernel times of the last command, or of the first step if it has several."""
        if self.last is None:
            return []
        recording = self.last._replace(n_steps=min(self.last.n_steps, 1), follows=False, part=RecordedPart.ALL)
        launches = [encoded for step in self._steps(recording) for encoded in step]
        command = self._memory.device.new_command_buffer(len(launches) + 1)
        self._record(command.encoder(), recording, timestamps=True)
        command.commit_and_wait()
        command.commit_and_wait()
        times = command.timestamps()
        command.close()
        spans = np.diff(times).tolist()
        return [KernelTime(encoded.label, 1, span) for encoded, span in zip(launches, spans, strict=True)]

    def close(self) -> None:
        for command in self._recorded.values():
            command.close()
        self._recorded = {}
        if self._begun is not None:
            self._begun.close()

    def _steps(self, recording: Recording) -> list[list[Encoded]]:
        """Return the launches of each step. A step writes the tokens and positions that the next step reads."""
        return [self._step(recording, step) for step in range(max(recording.n_steps, 1))]

    def _step(self, recording: Recording, step: int) -> list[Encoded]:
        layers = [] if recording.part is RecordedPart.CHOICE else self._layers(recording)
        first = [] if step or recording.part is RecordedPart.CHOICE else self._first_tokens(recording)
        drafts = self._encoded(first) + self._encoded(self._positions(recording))
        chosen = self._encoded(self._chosen(recording, step))
        return drafts + layers + chosen + self._encoded(self._settled(recording))

    def _first_tokens(self, recording: Recording) -> list[Dispatch]:
        """Return the dispatch that takes tokens of the first step from registers, if any are."""
        lowering = Lowering(self._memory, *recording.bucket)
        if recording.takes:
            lower_taken(lowering, recording.relative)
        return lowering.dispatches

    def _positions(self, recording: Recording) -> list[Dispatch]:
        """Return the dispatches that compute the inputs that follow from positions, which the host does not know."""
        lowering = Lowering(self._memory, *recording.bucket)
        for tensor in self._host.inputs if recording.relative else ():
            if isinstance(tensor, Input) and tensor.added is not None:
                lower_later_positions(lowering, lowering.place(tensor), tensor.added)
        return lowering.dispatches

    def _chosen(self, recording: Recording, step: int) -> list[Dispatch]:
        """Return the dispatches that pick the tokens of a step."""
        if not recording.n_steps or recording.part is RecordedPart.LAYERS:
            return []
        assert self._picker is not None
        lowering = Lowering(self._memory, *recording.bucket)
        best = self._persistent.best(lowering) if recording.persistent and self._persistent else None
        self._picker.lower(lowering, step, recording.choice, recording.turn, best, recording.first_draft)
        return lowering.dispatches

    def _layers(self, recording: Recording) -> list[Encoded]:
        """Return the launches of the layers, which all recordings of a bucket share."""
        key = recording.bucket, self._use(recording), recording.persistent
        if key not in self._known:
            self._known[key] = self._encoded(self._dispatches(recording))
        return self._known[key]

    def _dispatches(self, recording: Recording) -> list[Dispatch]:
        """Return the dispatches of the layers."""
        if not recording.persistent:
            return self._lower(recording.bucket, self._use(recording))
        assert self._persistent is not None
        return self._persistent.dispatches(recording.bucket)

    def _use(self, recording: Recording) -> StateUse:
        """Return what the layers do with recurrent states."""
        return StateUse.KEEP if self._memory.state_inputs and recording.choice.drafted else StateUse.ADVANCE

    def _settled(self, recording: Recording) -> list[Dispatch]:
        """Return the dispatches that let recurrent states read the right tokens, once a step has verified them."""
        if self._use(recording) is StateUse.ADVANCE or recording.part is RecordedPart.LAYERS:
            return []
        return self._lower(recording.bucket, StateUse.SETTLE)

    def _encoded(self, dispatches: list[Dispatch]) -> list[Encoded]:
        """Return the launches of dispatches, with a barrier before the first."""
        return [
            Encoded(launch(self._kernels, dispatch), dispatch.barrier or not index, dispatch.label)
            for index, dispatch in enumerate(dispatches)
        ]

    def _record(self, encoder: Encoder, recording: Recording, timestamps: bool = False) -> None:
        sizes = bucket_sizes(self._memory.limits, recording.bucket.n_tokens, recording.bucket.n_outputs)
        if recording.part is not RecordedPart.CHOICE:
            layout = self._memory.layout
            n_words = layout.n_words
            if recording.follows:  # the step before has written the others
                n_words = layout.positions if recording.takes else layout.n_host_words
            self._host.record_upload(encoder, recording.turn, n_words)
            self._host.record_inputs(encoder, recording.turn, sizes)
            if self._begun is not None and (recording.follows or recording.takes):
                self._begun.record(encoder, recording)
            if recording.copies:
                encoder.barrier()
            for copy in recording.copies:
                encoder.copy_buffer(copy.source, copy.begin, copy.target, copy.to, copy.n_bytes)
        if self._picker and recording.choice.restricted and recording.part is not RecordedPart.LAYERS:
            self._picker.record_restrictions(encoder, recording.bucket.n_outputs, recording.choice, recording.turn)
        encoder.barrier()
        if timestamps:
            encoder.timestamp(0)
        index = 0
        for step, launches in enumerate(self._steps(recording)):
            if step and self._host.inputs:  # the previous step has overwritten them
                encoder.barrier()
                self._host.record_next_inputs(encoder, recording.turn, sizes)
            for encoded in launches:
                if encoded.barrier:
                    encoder.barrier()
                encoder.launch(encoded.launch)
                if timestamps:
                    encoder.timestamp(index := index + 1)
        encoder.barrier()
        if not recording.n_steps:
            self._host.record_download(encoder, sizes, self._host.outputs)
        elif self._picker and (recording.choice.drafted or recording.n_steps == 1):
            others = [tensor for tensor in self._host.outputs if tensor is not self._picker.logits]
            self._host.record_download(encoder, sizes, others)
        if self._picker is None or len(self._host.outputs) > 1:  # the next program may overwrite what was copied
            encoder.barrier()
        encoder.end()


class Begun:
    """What steps change that others behind them read, as persistent ones found it, for a repetition.

    These are fields of the step block, and registers.
    """

    def __init__(self, memory: SegmentMemory) -> None:
        self._layout = memory.layout
        self._step = memory.step
        self._registers = registers_of(memory)
        n_bytes = 4 * (memory.layout.n_words + self._registers.size)
        self._kept = [memory.device.new_buffer(n_bytes) for _ in range(N_TURNS)]

    def record(self, encoder: Encoder, recording: Recording) -> None:
        """Record the copy for a step that follows others or takes their tokens, or back from it."""
        kept, registers, layout = self._kept[recording.turn], self._registers, self._layout
        start = layout.positions if recording.takes else layout.n_host_words  # the first word that is not uploaded
        copies = [(self._step, 4 * start, 4 * start, 4 * (layout.n_words - start))] if recording.follows else []
        if recording.takes:
            copies.append((registers.buffer, 4 * registers.offset, 4 * layout.n_words, 4 * registers.size))
        for buffer, place, kept_at, n_bytes in copies:
            if recording.persistent:
                encoder.copy_buffer(buffer, place, kept, kept_at, n_bytes)
            elif recording.restores:
                encoder.copy_buffer(kept, kept_at, buffer, place, n_bytes)

    def close(self) -> None:
        for buffer in self._kept:
            buffer.close()


class SlotCopies:
    """Copies recurrent states between slots."""

    def __init__(self, device: Device, states: Iterable[State], places: Mapping[State, Any]) -> None:
        self._device = device
        recurrent = [state for state in states if isinstance(state, RecurrentState)]
        self._places = [(places[state], 4 * math.prod(state.shape)) for state in recurrent]
        self._recorded: dict[tuple[tuple[int, int], ...], CommandBuffer] = {}

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy from the first slot of each pair to the second."""
        key = tuple(pairs)
        if key not in self._recorded:
            if len(self._recorded) == MOST_COPIES:
                self._recorded.pop(next(iter(self._recorded))).close()
            self._recorded[key] = self._device.new_command_buffer()
            self._record(self._recorded[key].encoder(), key)
        self._recorded[key].commit_and_wait()

    def close(self) -> None:
        for command in self._recorded.values():
            command.close()
        self._recorded = {}

    def _record(self, encoder: Encoder, pairs: Sequence[tuple[int, int]]) -> None:
        encoder.barrier()
        for place, n_bytes in self._places:
            for source, target in pairs:
                begin, end = (4 * place.offset + slot * n_bytes for slot in (source, target))
                encoder.copy_buffer(place.buffer, begin, place.buffer, end, n_bytes)
        encoder.barrier()
        encoder.end()


def launch(kernels: Kernels, dispatch: Dispatch) -> Launch:
    return Launch(kernels.pipeline(dispatch), dispatch.buffers, dispatch.push, dispatch.grid, dispatch.work)
