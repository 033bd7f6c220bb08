"""Programs: the command buffers of one segment on one device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import (
    N_OUTPUTS,
    N_SEQS,
    N_TOKENS,
    Ahead,
    Batch,
    KernelTime,
    Limits,
    MemoryPlan,
    Pick,
    Program,
    RecurrentState,
    Segment,
    Sizes,
    State,
    Tensor,
    Weight,
    concrete,
)
from pumice_vulkan.device import CommandBuffer, Device, Encoder
from pumice_vulkan.fuse import parts
from pumice_vulkan.kernels import Kernels
from pumice_vulkan.lower import RULES
from pumice_vulkan.lower.rule import STEP_INPUTS, Dispatch, Lowering, Memory
from pumice_vulkan.memory import Arena, Weights
from pumice_vulkan.picker import MAX_BEST, Picker
from pumice_vulkan.step import MAX_BIASES, MAX_PAST, MAX_STEPS, StepLayout, bucket_sizes, reads_memory

DTYPES = {"f32": np.float32, "i32": np.int32}
MOST_COPIES = 64  # command buffers that copy states, kept to be used again


class Bucket(NamedTuple):
    """The most tokens and the most output rows of a step; ``lone``: each token is the only one of its sequence."""

    n_tokens: int
    n_outputs: int
    lone: bool = False


class Recording(NamedTuple):
    """What a command buffer does: one step, or ``n_steps`` in a row, each with ``n_best`` candidates.

    ``adjusts``: of adjusted logits; ``follows``: from the tokens of those before; ``turn``: which memory of the host.
    """

    bucket: Bucket
    n_steps: int = 0
    n_best: int = 0
    adjusts: bool = False
    follows: bool = False
    turn: int = 0


@dataclass
class Shared:
    """What the programs of a model have in common on one device."""

    device: Device
    kernels: Kernels
    weights: Weights
    cache: Arena
    int8: bool = False
    cooperative: bool = False
    states: dict[State, Any] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)  # names of the weights that are there


class DeviceProgram(Program):
    """A fused segment, lowered for every bucket when made, and recorded for a bucket when it is first needed.

    The host writes what changes from step to step into one buffer that every command buffer begins by copying to
    the device, and finds the results in another. Where the segment gives logits, it can take several steps in a row.
    """

    def __init__(self, shared: Shared, segment: Segment, plan: MemoryPlan, limits: Limits) -> None:
        self._shared = shared
        self._segment = segment
        self._limits = limits
        device = shared.device
        self._inputs = [tensor for tensor in segment.inputs if tensor.name not in STEP_INPUTS]
        layout = StepLayout(limits, reads_memory=any(map(reads_memory, segment.nodes)))
        self._upload_bytes, self._input_places = _pack(self._inputs, limits, 4 * layout.n_words)
        self._download_bytes, self._output_places = _pack(segment.outputs, limits, 0)
        self._uploads = [device.new_buffer(self._upload_bytes, host=True) for _ in range(2)]
        self._download = device.new_buffer(self._download_bytes, host=True)
        for upload in self._uploads:
            upload.contents[:] = 0
        self._arena = Arena(device, plan.size)
        self._step = device.new_buffer(4 * layout.n_words)
        self._scratch = Arena(device, 1 << 20)
        self._memory = Memory(
            device=device,
            limits=limits,
            plan=plan,
            weights=shared.weights,
            activations=self._arena.take(max(plan.size, 4)),
            step=self._step,
            layout=layout,
            cache=shared.cache,
            scratch=self._scratch,
            int8=shared.int8,
            cooperative=shared.cooperative,
            states=shared.states,
            rules=RULES,
        )
        new = self._new_weights()
        shared.weights.expect(_weight_bytes(new))
        self._weights_nbytes = sum(source.nbytes for source in {weight.source for weight in new})
        self._buckets = _buckets(limits)
        cache_bytes = shared.cache.nbytes
        self._lowered = {bucket: self._lower(bucket) for bucket in reversed(self._buckets)}
        shared.weights.finish()
        self._cache_bytes = shared.cache.nbytes - cache_bytes
        self._picker = Picker(self._memory, segment.outputs[0]) if segment.gives_logits else None
        self._recorded: dict[Recording, CommandBuffer] = {}
        self._last: Recording | None = None
        self._turns: list[Recording | None] = [None, None]  # what used the memory of the host last
        self._copies: dict[tuple[tuple[int, int], ...], CommandBuffer] = {}

    def run(self, inputs: Mapping[str, NDArray[Any]], batch: Batch) -> Mapping[str, NDArray[Any]]:
        return self.submit(inputs, batch)()

    def submit(self, inputs: Mapping[str, NDArray[Any]], batch: Batch) -> Callable[[], Mapping[str, NDArray[Any]]]:
        sizes = batch.sizes
        self._free(0)
        self._write(inputs, batch)
        lone = sizes[N_TOKENS] == sizes[N_SEQS] == sizes[N_OUTPUTS]
        command = self._commit(Recording(self._bucket(sizes[N_TOKENS], sizes[N_OUTPUTS], lone)))

        def results() -> Mapping[str, NDArray[Any]]:
            command.wait()
            return {tensor.name: self._result(tensor, sizes) for tensor in self._segment.outputs}

        return results

    @property
    def max_steps(self) -> int:
        return (1 if self._inputs else MAX_STEPS) if self._picker else 0

    @property
    def max_best(self) -> int:
        return MAX_BEST if self._picker else 0

    def run_ahead(
        self,
        batch: Batch,
        picks: Sequence[Pick],
        numbers: NDArray[np.float32],
        n_best: int,
        inputs: Mapping[str, NDArray[Any]] | None = None,
        pasts: Sequence[Sequence[int]] = (),
    ) -> Ahead:
        return self._submit_ahead(batch, picks, numbers, n_best, pasts, inputs or {}, follows=False)()

    @property
    def decides(self) -> bool:
        return self._picker is not None

    @property
    def max_adjustments(self) -> tuple[int, int]:
        return MAX_BIASES, MAX_PAST

    @property
    def follows(self) -> bool:
        return not self._inputs and self._picker is not None and self._shared.device.runs_behind

    def submit_ahead(
        self,
        batch: Batch,
        picks: Sequence[Pick],
        numbers: NDArray[np.float32],
        n_best: int,
        pasts: Sequence[Sequence[int]] = (),
        follows: bool = False,
    ) -> Callable[[], Ahead]:
        return self._submit_ahead(batch, picks, numbers, n_best, pasts, {}, follows)

    def _submit_ahead(
        self,
        batch: Batch,
        picks: Sequence[Pick],
        numbers: NDArray[np.float32],
        n_best: int,
        pasts: Sequence[Sequence[int]],
        inputs: Mapping[str, NDArray[Any]],
        follows: bool,
    ) -> Callable[[], Ahead]:
        assert self._picker is not None
        picker, turn = self._picker, 1 - self._last.turn if follows and self._last else 0
        self._free(turn)
        words = self._uploads[turn].contents.view(np.int32)
        self._write(inputs, batch, turn)
        self._memory.layout.write_picks(words, picks, numbers, turn)
        adjusts = any(pick.adjusts for pick in picks)
        if adjusts and not follows:
            self._memory.layout.write_pasts(words, pasts)
        n_steps, n_seqs = numbers.shape
        bucket = self._bucket(n_seqs, n_seqs, lone=True)
        recording = Recording(bucket, n_steps, 1 if n_best == 1 else MAX_BEST, adjusts, follows, turn)
        command = self._commit(recording)

        def results() -> Ahead:
            command.wait()
            found = picker.results(turn, n_steps, recording.n_best, bucket.n_outputs)
            return Ahead(found.ids[:, :n_seqs, :n_best], found.logits[:, :n_seqs, :n_best], found.picked[:, :n_seqs])

        return results

    @property
    def copies_slots(self) -> bool:
        return True

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        key = tuple(pairs)
        if key not in self._copies:
            if len(self._copies) == MOST_COPIES:
                self._copies.pop(next(iter(self._copies))).close()
            self._copies[key] = self._shared.device.new_command_buffer()
            self._record_copies(self._copies[key].encoder(), key)
        self._copies[key].commit_and_wait()

    def _record_copies(self, encoder: Encoder, pairs: Sequence[tuple[int, int]]) -> None:
        encoder.barrier()
        for state in self._segment.states:
            if isinstance(state, RecurrentState):
                place, n_bytes = self._shared.states[state], 4 * math.prod(state.shape)
                for source, target in pairs:
                    begin, end = (4 * place.offset + slot * n_bytes for slot in (source, target))
                    encoder.copy_buffer(place.buffer, begin, place.buffer, end, n_bytes)
        encoder.barrier()
        encoder.end()

    def profile(self) -> list[KernelTime]:
        """Runs the last step once more, of several the first; recurrent states go on from there."""
        if self._last is None:
            return []
        recording = self._last._replace(n_steps=min(self._last.n_steps, 1), follows=False)
        dispatches = self._dispatches(recording)
        command = self._shared.device.new_command_buffer(len(dispatches) + 1)
        self._record(command.encoder(), recording, timestamps=True)
        command.commit_and_wait()
        command.commit_and_wait()
        times = command.timestamps()
        command.close()
        spans = np.diff(times).tolist()
        return [KernelTime(each.label, 1, span) for each, span in zip(dispatches, spans, strict=True)]

    @property
    def memory(self) -> dict[str, int]:
        return {
            "weights": self._weights_nbytes,
            "kv_cache": self._cache_bytes,
            "activations": self._arena.nbytes + self._scratch.nbytes,
        }

    def close(self) -> None:
        for command in (*self._recorded.values(), *self._copies.values()):
            command.close()
        self._recorded, self._copies = {}, {}
        for arena in (self._arena, self._scratch):
            arena.close()
        for buffer in (self._step, *self._uploads, self._download):
            buffer.close()
        if self._picker:
            self._picker.close()

    def _new_weights(self) -> list[Weight]:
        """Those that no program before this one has uploaded."""
        operands = [tensor for node in parts(self._segment) for tensor in node.operands()]
        used = {weight.name: weight for weight in operands if isinstance(weight, Weight)}
        new = [weight for name, weight in used.items() if name not in self._shared.used]
        self._shared.used |= set(used)
        return new

    def _lower(self, bucket: Bucket) -> list[Dispatch]:
        at = Lowering(self._memory, *bucket)
        for node in self._segment.nodes:
            at.lower(node)
        return at.dispatches

    def _bucket(self, n_tokens: int, n_outputs: int, lone: bool) -> Bucket:
        fitting = (b for b in self._buckets if b.n_tokens >= n_tokens and b.n_outputs >= n_outputs)
        return next(b for b in fitting if lone or not b.lone or n_tokens == 1)

    def _free(self, turn: int) -> None:
        """Wait until the device is done with the memory of the host of a number."""
        user = self._turns[turn]
        if user is not None:
            self._recorded[user].wait()

    def _write(self, inputs: Mapping[str, NDArray[Any]], batch: Batch, turn: int = 0) -> None:
        """Have the next commit find a batch and the segment's inputs."""
        self._memory.layout.write(self._uploads[turn].contents.view(np.int32), batch, turn)
        for tensor in self._inputs:
            values = inputs[tensor.name]
            offset = self._input_places[tensor]
            view = self._uploads[turn].contents[offset : offset + values.nbytes].view(values.dtype)
            np.copyto(view.reshape(values.shape), values)

    def _commit(self, recording: Recording) -> CommandBuffer:
        if recording not in self._recorded:
            command = self._shared.device.new_command_buffer()
            self._record(command.encoder(), recording)
            self._recorded[recording] = command
        self._recorded[recording].commit()
        self._last = self._turns[recording.turn] = recording
        return self._recorded[recording]

    def _dispatches(self, recording: Recording) -> list[Dispatch]:
        """Those of all steps. What a step picks is where the next one finds its tokens and positions."""
        bucket, n_steps = recording.bucket, recording.n_steps
        dispatches = list(self._lowered[bucket])
        for step in range(n_steps):
            assert self._picker is not None
            at = Lowering(self._memory, *bucket)
            self._picker.lower(at, step, recording.n_best, recording.adjusts, recording.turn)
            dispatches += _after_all(at.dispatches)
            if step + 1 < n_steps:
                dispatches += _after_all(self._lowered[bucket])
        return dispatches

    def _record(self, encoder: Encoder, recording: Recording, timestamps: bool = False) -> None:
        sizes = bucket_sizes(self._limits, recording.bucket.n_tokens, recording.bucket.n_outputs)
        activations = self._memory.activations
        upload = self._uploads[recording.turn]
        n_words = self._memory.layout.n_host_words if recording.follows else self._memory.layout.n_words
        encoder.copy_buffer(upload, 0, self._step, 0, 4 * n_words)
        for tensor in self._inputs:
            n_bytes, target = _bytes(tensor, sizes), 4 * activations.offset + self._memory.plan.offsets[tensor]
            encoder.copy_buffer(upload, self._input_places[tensor], activations.buffer, target, n_bytes)
        encoder.barrier()
        if timestamps:
            encoder.timestamp(0)
        for index, dispatch in enumerate(self._dispatches(recording), 1):
            if dispatch.barrier:
                encoder.barrier()
            encode(encoder, self._shared.kernels, dispatch)
            if timestamps:
                encoder.timestamp(index)
        encoder.barrier()
        for tensor in [] if recording.n_steps else self._segment.outputs:
            n_bytes, source = _bytes(tensor, sizes), 4 * activations.offset + self._memory.plan.offsets[tensor]
            encoder.copy_buffer(activations.buffer, source, self._download, self._output_places[tensor], n_bytes)
        encoder.end()

    def _result(self, tensor: Tensor, sizes: Sizes) -> NDArray[Any]:
        shape = concrete(tensor.shape, sizes)
        offset = self._output_places[tensor]
        n_bytes = 4 * math.prod(shape)
        return self._download.contents[offset : offset + n_bytes].view(DTYPES[tensor.dtype]).reshape(shape)


def _after_all(dispatches: list[Dispatch]) -> list[Dispatch]:
    """With a barrier before the first of them."""
    return [replace(dispatches[0], barrier=True), *dispatches[1:]]


def encode(encoder: Encoder, kernels: Kernels, dispatch: Dispatch) -> None:
    encoder.set_pipeline(kernels.pipeline(dispatch))
    for index, buffer in enumerate(dispatch.buffers):
        encoder.set_buffer(index, buffer)
    encoder.set_bytes(dispatch.push)
    encoder.dispatch_threadgroups(*dispatch.grid)


def _buckets(limits: Limits) -> list[Bucket]:
    """Powers of two up to the largest step, each for one output row and for as many as it can have; before them those
    for lone tokens of as many sequences as there can be."""
    sizes = [1]
    while sizes[-1] < limits.n_batch:
        sizes.append(min(2 * sizes[-1], limits.n_batch))
    buckets = {Bucket(n, m, lone=n == 1) for n in sizes for m in (1, min(n, limits.n_outputs))}
    most = min(limits.n_seqs, limits.n_outputs, limits.n_batch)
    buckets |= {Bucket(n, min(n, limits.n_outputs), lone=True) for n in sizes if n < 2 * most}
    return sorted(buckets, key=lambda bucket: (bucket.n_tokens, not bucket.lone, bucket.n_outputs))


def _weight_bytes(weights: Iterable[Weight]) -> int:
    """About what weights take."""
    return sum(weight.nbytes * 33 // 32 + 4096 for weight in weights)


def _bytes(tensor: Tensor, sizes: Sizes) -> int:
    return 4 * math.prod(concrete(tensor.shape, sizes))


def _pack(tensors: list[Tensor], limits: Limits, start: int) -> tuple[int, dict[Tensor, int]]:
    """Offsets for tensors one after the other, and the bytes in all."""
    offsets = {}
    for tensor in tensors:
        offsets[tensor] = start
        start += -(-_bytes(tensor, limits.sizes) // 256) * 256
    return max(start, 4), offsets
