"""Host memory that the device copies from and to: the data of a step, and its results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import Tensor
from pumice.plugin.unstable import Batch, Input, Limits, Passed, Sizes, concrete
from pumice_vulkan.device import Buffer, Encoder
from pumice_vulkan.lower.rule import STEP_INPUTS, SegmentMemory

DTYPES = {"f32": np.float32, "i32": np.int32}
N_TURNS = 2  # upload buffers: one is written while the device reads the other


class HostMemory:
    """Uploads a step's fields and a segment's inputs, and downloads its outputs.

    ``fed``: an output, and the input that it is in the next step of several. ``stays``: these are all at one position.
    """

    def __init__(
        self,
        memory: SegmentMemory,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        fed: tuple[Tensor, Tensor] | None = None,
        stays: bool = False,
    ) -> None:
        self.inputs = [tensor for tensor in inputs if tensor.name not in STEP_INPUTS]
        self.outputs = outputs
        self.fed = fed
        self._stays = stays
        self._memory = memory
        upload_bytes, self._input_places = _pack(self.inputs, memory.limits, 4 * memory.layout.n_words)
        download_bytes, self._output_places = _pack(outputs, memory.limits, 0)
        self._uploads = [memory.device.new_buffer(upload_bytes, host=True) for _ in range(N_TURNS)]
        self._download = memory.device.new_buffer(download_bytes, host=True)
        self._latest: dict[int, tuple[Sizes, dict[str, NDArray[Any]]]] = {}  # arrays of each buffer, and their sizes
        for upload in self._uploads:
            upload.contents[:] = 0

    @property
    def step(self) -> Buffer:
        """The step block on the device."""
        return self._memory.step

    def output_place(self, name: str) -> tuple[Buffer, int, int]:
        """Return the buffer and byte offset to which an output is copied, and its most bytes."""
        tensor, offset = next(item for item in self._output_places.items() if item[0].name == name)
        return self._download, offset, _bytes(tensor, self._memory.limits.sizes)

    def input_place(self, name: str) -> tuple[Buffer, int]:
        """Return the buffer and byte offset of an input on the device."""
        return self._at(self._input(name))

    def row_bytes(self, name: str) -> int:
        """Return the bytes of a row of an input."""
        return 4 * math.prod(map(int, self._input(name).shape[1:]))

    def _input(self, name: str) -> Tensor:
        return next(tensor for tensor in self.inputs if tensor.name == name)

    def words(self, turn: int) -> NDArray[np.int32]:
        """Return the words of the step's fields (``StepLayout``) for writing."""
        return self._uploads[turn].contents.view(np.int32)

    def write_step(self, batch: Batch, turn: int) -> None:
        """Write a batch for the next commit."""
        self._memory.layout.write(self.words(turn), batch, turn)

    def input_room(self, sizes: Sizes, turn: int) -> dict[str, NDArray[Any]]:
        """Return arrays for the segment's inputs."""
        return self._arrays(turn, self._uploads[turn], self.inputs, self._input_places, sizes)

    def write_inputs(self, inputs: Mapping[str, NDArray[Any]], room: Mapping[str, NDArray[Any]], turn: int) -> None:
        """Write the segment's inputs, and its tokens if they are among them, for the next commit.

        Inputs that pending steps compute are left out.
        """
        for name, values in room.items():
            if not isinstance(inputs[name], Passed):
                np.copyto(values, inputs[name])
        if "tokens" in inputs:
            self._memory.layout.write_tokens(self.words(turn), inputs["tokens"], turn)

    @property
    def goes_on(self) -> bool:
        """True if steps can be chained: later steps reuse the first one's inputs, except the one that is fed."""
        fed = self.fed[1] if self.fed else None
        return (fed is not None and self._stays) or all(
            tensor is fed or (isinstance(tensor, Input) and tensor.of_sequences) for tensor in self.inputs
        )

    def record_upload(self, encoder: Encoder, turn: int, n_words: int) -> None:
        """Record the copy of ``n_words`` of the step's fields."""
        encoder.copy_buffer(self._uploads[turn], 0, self._memory.step, 0, 4 * n_words)

    def record_inputs(self, encoder: Encoder, turn: int, sizes: Sizes) -> None:
        """Record the copy of the inputs."""
        self._record_uploads(encoder, self.inputs, turn, sizes)

    def record_next_inputs(self, encoder: Encoder, turn: int, sizes: Sizes) -> None:
        """Record the copy of the inputs of a step behind another one, which has overwritten them."""
        fed = self.fed[1] if self.fed else None
        self._record_uploads(encoder, [tensor for tensor in self.inputs if tensor is not fed], turn, sizes)
        if self.fed:
            (source, begin), (target, end) = map(self._at, self.fed)
            n_bytes = _bytes(self.fed[0], sizes)
            between = self._memory.scratch.take("fed", n_bytes)  # since the two may overlap
            encoder.copy_buffer(source, begin, between.buffer, 4 * between.offset, n_bytes)
            encoder.barrier()
            encoder.copy_buffer(between.buffer, 4 * between.offset, target, end, n_bytes)
            encoder.barrier()

    def _record_uploads(self, encoder: Encoder, tensors: Sequence[Tensor], turn: int, sizes: Sizes) -> None:
        for tensor in tensors:
            buffer, offset = self._at(tensor)
            encoder.copy_buffer(self._uploads[turn], self._input_places[tensor], buffer, offset, _bytes(tensor, sizes))

    def record_download(self, encoder: Encoder, sizes: Sizes, outputs: Sequence[Tensor]) -> None:
        """Record the copy of outputs."""
        for tensor in outputs:
            buffer, offset = self._at(tensor)
            encoder.copy_buffer(buffer, offset, self._download, self._output_places[tensor], _bytes(tensor, sizes))

    def results(self, sizes: Sizes) -> dict[str, NDArray[Any]]:
        """Return the outputs of the last copy; the next one overwrites them."""
        return self._arrays(N_TURNS, self._download, self.outputs, self._output_places, sizes)

    def _arrays(
        self, key: int, buffer: Buffer, tensors: Sequence[Tensor], places: Mapping[Tensor, int], sizes: Sizes
    ) -> dict[str, NDArray[Any]]:
        """Return tensors in a buffer as arrays; those of the same sizes as before are made once."""
        before = self._latest.get(key)
        if before is None or before[0] != sizes:
            contents = buffer.contents
            arrays = {tensor.name: _array(contents, places[tensor], tensor, sizes) for tensor in tensors}
            before = self._latest[key] = dict(sizes), arrays
        return dict(before[1])

    def close(self) -> None:
        self._latest.clear()
        for buffer in (*self._uploads, self._download):
            buffer.close()

    def _at(self, tensor: Tensor) -> tuple[Buffer, int]:
        """Return the buffer and byte offset of an activation on the device."""
        activations = self._memory.activations
        return activations.buffer, 4 * activations.offset + self._memory.plan.offsets[tensor]


def _array(memory: NDArray[np.uint8], offset: int, tensor: Tensor, sizes: Sizes) -> NDArray[Any]:
    """Return a tensor in host memory as an array."""
    values = memory[offset : offset + _bytes(tensor, sizes)].view(DTYPES[tensor.dtype])
    return values.reshape(concrete(tensor.shape, sizes))


def _bytes(tensor: Tensor, sizes: Sizes) -> int:
    return 4 * math.prod(concrete(tensor.shape, sizes))


def _pack(tensors: Sequence[Tensor], limits: Limits, start: int) -> tuple[int, dict[Tensor, int]]:
    """Return the total bytes of adjacent tensors, and their offsets."""
    offsets = {}
    for tensor in tensors:
        offsets[tensor] = start
        start += -(-_bytes(tensor, limits.sizes) // 256) * 256
    return max(start, 4), offsets
