"""The command buffers of a program: recorded when they are first needed, committed as often as wanted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from pumice.plugin import KernelTime, RecurrentState, State
from pumice_vulkan.buckets import Bucket, bucket_sizes
from pumice_vulkan.device import CommandBuffer, Device, Encoder
from pumice_vulkan.host import N_TURNS, HostMemory
from pumice_vulkan.kernels import Kernels
from pumice_vulkan.lower.rule import Dispatch, Lowering, Memory
from pumice_vulkan.picker import NO_CHOICE, Choice, Picker

MOST_COPIES = 64  # command buffers that copy states, kept to be used again


class Part(Enum):
    """Of a recording."""

    ALL = "layers and choice"
    LAYERS = "up to the logits"
    CHOICE = "behind the logits"


class Recording(NamedTuple):
    """What a command buffer does: one step, or ``n_steps`` in a row, each with a choice of tokens; or a part of that.

    ``follows``: from the tokens of those before; ``turn``: which memory of the host.
    """

    bucket: Bucket
    n_steps: int = 0
    choice: Choice = NO_CHOICE
    follows: bool = False
    turn: int = 0
    part: Part = Part.ALL


class Recorder:
    """Records the steps of a segment; ``lower`` gives the dispatches of one for a bucket."""

    def __init__(
        self,
        memory: Memory,
        kernels: Kernels,
        host: HostMemory,
        lower: Callable[[Bucket], list[Dispatch]],
        picker: Picker | None,
    ) -> None:
        self.last: Recording | None = None
        self._memory = memory
        self._kernels = kernels
        self._host = host
        self._lower = lower
        self._picker = picker
        self._recorded: dict[Recording, CommandBuffer] = {}
        self._turns: list[Recording | None] = [None] * N_TURNS  # what used the memory of the host last

    def free(self, turn: int) -> None:
        """Wait until the device is done with the memory of the host of a number."""
        user = self._turns[turn]
        if user is not None:
            self._recorded[user].wait()

    @property
    def other_turn(self) -> int:
        """The number of the memory of the host that the last step does not use."""
        return 1 - self.last.turn if self.last else 0

    def commit(self, recording: Recording) -> CommandBuffer:
        command = self.command(recording)
        command.commit()
        return command

    def command(self, recording: Recording) -> CommandBuffer:
        """What to commit next."""
        if recording not in self._recorded:
            command = self._memory.device.new_command_buffer()
            self._record(command.encoder(), recording)
            self._recorded[recording] = command
        self.last = self._turns[recording.turn] = recording
        return self._recorded[recording]

    def profile(self) -> list[KernelTime]:
        """Times of the last command's kernels; of several steps those of the first."""
        if self.last is None:
            return []
        recording = self.last._replace(n_steps=min(self.last.n_steps, 1), follows=False, part=Part.ALL)
        dispatches = [dispatch for step in self._steps(recording) for dispatch in step]
        command = self._memory.device.new_command_buffer(len(dispatches) + 1)
        self._record(command.encoder(), recording, timestamps=True)
        command.commit_and_wait()
        command.commit_and_wait()
        times = command.timestamps()
        command.close()
        spans = np.diff(times).tolist()
        return [KernelTime(each.label, 1, span) for each, span in zip(dispatches, spans, strict=True)]

    def close(self) -> None:
        for command in self._recorded.values():
            command.close()
        self._recorded = {}

    def _steps(self, recording: Recording) -> list[list[Dispatch]]:
        """The dispatches of each. What a step picks is where the next one finds its tokens and positions."""
        return [self._step(recording, step) for step in range(max(recording.n_steps, 1))]

    def _step(self, recording: Recording, step: int) -> list[Dispatch]:
        bucket, part = recording.bucket, recording.part
        dispatches = [] if part is Part.CHOICE else _after_all(self._lower(bucket))
        if recording.n_steps and part is not Part.LAYERS:
            assert self._picker is not None
            at = Lowering(self._memory, *bucket)
            self._picker.lower(at, step, recording.choice, recording.turn)
            dispatches += _after_all(at.dispatches)
        return dispatches

    def _record(self, encoder: Encoder, recording: Recording, timestamps: bool = False) -> None:
        sizes = bucket_sizes(self._memory.limits, recording.bucket.n_tokens, recording.bucket.n_outputs)
        if recording.part is not Part.CHOICE:
            layout = self._memory.layout
            n_words = layout.n_host_words if recording.follows else layout.n_words
            self._host.record_upload(encoder, recording.turn, n_words)
            self._host.record_inputs(encoder, recording.turn, sizes)
        if self._picker and recording.choice.restricted and recording.part is not Part.LAYERS:
            self._picker.restrictions.record(encoder, recording.bucket.n_outputs, recording.turn)
        encoder.barrier()
        if timestamps:
            encoder.timestamp(0)
        index = 0
        for step, dispatches in enumerate(self._steps(recording)):
            if step and self._host.inputs:  # others lie there by now
                encoder.barrier()
                self._host.record_inputs(encoder, recording.turn, sizes)
            for dispatch in dispatches:
                if dispatch.barrier:
                    encoder.barrier()
                encode(encoder, self._kernels, dispatch)
                if timestamps:
                    encoder.timestamp(index := index + 1)
        encoder.barrier()
        if not recording.n_steps:
            self._host.record_download(encoder, sizes)
        encoder.end()


class SlotCopies:
    """Copies of recurrent states from slots to slots."""

    def __init__(self, device: Device, states: Iterable[State], places: Mapping[State, Any]) -> None:
        self._device = device
        recurrent = [state for state in states if isinstance(state, RecurrentState)]
        self._places = [(places[state], 4 * math.prod(state.shape)) for state in recurrent]
        self._recorded: dict[tuple[tuple[int, int], ...], CommandBuffer] = {}

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """From the first slot of each pair to the second."""
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


def _after_all(dispatches: list[Dispatch]) -> list[Dispatch]:
    """With a barrier before the first of them."""
    return [*(replace(first, barrier=True) for first in dispatches[:1]), *dispatches[1:]]


def encode(encoder: Encoder, kernels: Kernels, dispatch: Dispatch) -> None:
    encoder.set_pipeline(kernels.pipeline(dispatch))
    for index, buffer in enumerate(dispatch.buffers):
        encoder.set_buffer(index, buffer)
    encoder.set_bytes(dispatch.push)
    encoder.dispatch_threadgroups(*dispatch.grid)
