"""Device memory: large buffers with a bump allocator, and uploads of weights."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import BackendError
from pumice.plugin.unstable import cores
from pumice_vulkan.device import Buffer, CommandBuffer, ComputePipeline, Device, Encoder
from pumice_vulkan.packing import Packing, Piece
from pumice_vulkan.shaders import interface, shader

ALIGNMENT = 64  # words
STAGING_BYTES = 8 * 2**20
N_STAGING = 8  # buffers of an upload
N_COPYING = 4  # minimum threads that read a file's pages; a single one reaches 7 GB/s
MOST_COPYING = 8  # ... and maximum
LEAST_COPIED = 2**20  # minimum bytes per thread


@dataclass(frozen=True)
class BufferSlice:
    """A range of a buffer in 32-bit words. A ``constant`` range is never written, so it needs no barriers."""

    buffer: Buffer
    offset: int
    size: int
    constant: bool = False

    def overlaps(self, other: BufferSlice) -> bool:
        if self.buffer is not other.buffer:
            return False
        return self.offset < other.offset + other.size and other.offset < self.offset + self.size

    def part(self, offset: int, size: int) -> BufferSlice:
        """Return a part of this range by offset and size in words."""
        assert 0 <= offset <= offset + size <= self.size
        return BufferSlice(self.buffer, self.offset + offset, size, self.constant)


class Arena:
    """An allocator of places in as few buffers as the device allows.

    ``expected`` is an estimate of the total bytes. With ``host``, the buffers lie in host memory that the device reads.
    """

    def __init__(self, device: Device, expected: int = 0, host: bool = False) -> None:
        self._device = device
        self._host = host
        self._expected = expected
        self._buffers: list[Buffer] = []
        self._used = 0  # words in use in the last buffer

    @property
    def nbytes(self) -> int:
        return sum(buffer.n_bytes for buffer in self._buffers)

    def take(self, n_bytes: int, constant: bool = False) -> BufferSlice:
        """Allocate memory. Raises BackendError if the device has no more."""
        size = -(-n_bytes // 4)
        if not self._buffers or self._used + size > self._buffers[-1].n_bytes // 4:
            self._grow(size)
        place = BufferSlice(self._buffers[-1], self._used, size, constant)
        self._used += -(-size // ALIGNMENT) * ALIGNMENT
        return place

    def expect(self, n_bytes: int) -> None:
        self._expected += n_bytes

    def _grow(self, size: int) -> None:
        left = -(-(self._expected - self.nbytes) // 256) * 256
        most = self._device.description.max_buffer_bytes // 256 * 256
        n_bytes = max(min(left, most), 4 * size, 4 * ALIGNMENT)
        self._buffers.append(self._device.new_buffer(n_bytes, host=self._host))
        self._used = 0

    def close(self) -> None:
        for buffer in self._buffers:
            buffer.close()
        self._buffers = []


class Scratch:
    """Memory of a device by name; each name's grows to the largest request.

    All programs of a device share it: a device computes one command buffer after the other, and each begins and ends
    with a barrier. Contents last for one step.
    """

    def __init__(self, device: Device, expected: int = 0) -> None:
        self._arena = Arena(device, expected)
        self._named: dict[str, BufferSlice] = {}
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        return self._arena.nbytes

    def take(self, name: str, n_bytes: int) -> BufferSlice:
        """Return memory of a name. Raises BackendError if the device has no more."""
        with self._lock:
            if name not in self._named or 4 * self._named[name].size < n_bytes:
                self._named[name] = self._arena.take(n_bytes)
            return self._named[name].part(0, -(-n_bytes // 4))

    def close(self) -> None:
        self._arena.close()


WeightData = NDArray[np.generic] | tuple[int, Iterable[NDArray[np.generic]]] | Packing
"""Data to upload: an array, a stream of arrays with its size in bytes, or a matrix that a kernel repacks."""


class Weights:
    """The weights of a model on one device; each layout of each tensor is stored once.

    One thread at a time uploads or frees the staging buffers: a thread that prepares steps does so beside the engine's.
    """

    def __init__(self, device: Device) -> None:
        self._lock = threading.RLock()
        self._device = device
        self._arena = Arena(device)
        self._in_place = Arena(device, host=True)
        self._places: dict[Hashable, tuple[list[BufferSlice], object]] = {}
        self._staging: Staging | None = None

    @property
    def nbytes(self) -> int:
        return self._arena.nbytes

    def __contains__(self, key: Hashable) -> bool:
        return key in self._places

    def expect(self, n_bytes: int, n_in_place: int = 0) -> None:
        """Reserve buffers large enough for ``n_bytes`` more, and ``n_in_place`` in host memory."""
        self._arena.expect(n_bytes)
        self._in_place.expect(n_in_place)

    def put(
        self,
        key: Hashable,
        make: Callable[[], Sequence[WeightData]],
        owner: object = None,
        *,
        in_place: bool = False,
    ) -> list[BufferSlice]:
        """Upload the parts returned by ``make``, unless ``key`` exists; return a place for each part.

        ``owner`` is kept alive, for keys that contain the ``id`` of an object. The device reads parts that are
        ``in_place`` in host memory.
        """
        with self._lock:
            if key not in self._places:
                parts = make()
                if self._staging is None:
                    n_copying = min(max(cores() // 2, N_COPYING), MOST_COPYING)
                    self._staging = Staging(self._device, STAGING_BYTES, N_STAGING, n_copying)
                arena = self._in_place if in_place else self._arena
                self._places[key] = [self._upload(self._staging, part, arena) for part in parts], owner
            return self._places[key][0]

    def finish(self) -> None:
        """Wait for the uploads and free their staging buffers."""
        with self._lock:
            staging, self._staging = self._staging, None
            if staging is not None:
                try:
                    staging.wait()
                finally:
                    staging.close()

    def _upload(self, staging: Staging, part: WeightData, arena: Arena) -> BufferSlice:
        n_bytes = part[0] if isinstance(part, tuple) else part.nbytes
        if n_bytes > self._device.description.max_buffer_bytes:
            raise BackendError(f"vulkan: a weight of {n_bytes} bytes is too large for a buffer of {self._device.name}")
        place = arena.take(max(n_bytes, 4), constant=True)
        if isinstance(part, Packing):
            staging.repack(place, part)
        else:
            staging.write(place, part[1] if isinstance(part, tuple) else [part])
        return place

    def close(self) -> None:
        if self._staging is not None:
            self._staging.close()
        self._staging = None
        self._in_place.close()
        self._arena.close()


class Staging:
    """A ring of host buffers: ``n_copying`` threads fill some while the device copies others.

    A command is committed once its buffer is filled, in order: waiting for the threads after each piece instead took
    0.6 ms for 8 MiB, which they copy in 0.3. Buffers are allocated when they are needed.
    """

    def __init__(self, device: Device, n_bytes: int, n_buffers: int, n_copying: int) -> None:
        self._device = device
        self._n_bytes = n_bytes
        self._n_parts = max(1, 2 * n_copying // n_buffers)  # of a piece, so that all threads have work
        self._pipelines: dict[str, ComputePipeline] = {}
        self._turns = [_Turn() for _ in range(n_buffers)]
        self._number = 0  # of the turn that is used
        self._filling: deque[_Turn] = deque()  # whose commands are to be committed, in order
        self._copying = ThreadPoolExecutor(n_copying, "pumice-vulkan-upload")

    def write(self, place: BufferSlice, chunks: Iterable[NDArray[np.generic]]) -> None:
        offset = 4 * place.offset
        for piece in _pieces(chunks, self._n_bytes):
            buffer, n_bytes, encoder = self._begin(piece)
            encoder.copy_buffer(buffer, 0, place.buffer, offset, n_bytes)
            self._commit(encoder)
            offset += len(piece)

    def repack(self, place: BufferSlice, packing: Packing) -> None:
        """Copy the file's blocks to the device and repack them to their place."""
        if packing.kernel not in self._pipelines:
            n_bytes = interface(packing.kernel).n_bytes
            self._pipelines[packing.kernel] = self._device.new_pipeline(shader(packing.kernel), 2, n_bytes)
        for piece in packing.pieces(self._n_bytes):
            buffer, n_bytes, encoder = self._begin(piece.data)
            raw = self._turn.raw = self._turn.raw or self._device.new_buffer(self._n_bytes)
            encoder.copy_buffer(buffer, 0, raw, 0, n_bytes)
            encoder.barrier()
            self._repack(place, packing, piece, raw, encoder)
            self._commit(encoder)

    def _repack(self, place: BufferSlice, packing: Packing, piece: Piece, raw: Buffer, encoder: Encoder) -> None:
        """Repack raw blocks to their place."""
        encoder.set_pipeline(self._pipelines[packing.kernel])
        encoder.set_buffer(0, raw)
        encoder.set_buffer(1, place.buffer)
        encoder.set_bytes(
            interface(packing.kernel).pack(
                source_offset=0,
                target_offset=place.offset,
                n_matrix=packing.n_blocks,
                row_blocks=packing.row_blocks,
                first=piece.first,
                n_source=piece.n_blocks,
            )
        )
        encoder.dispatch_threadgroups(piece.n_workgroups)

    def _begin(self, piece: NDArray[np.uint8]) -> tuple[Buffer, int, Encoder]:
        """Begin to fill the next buffer with a piece; return it, its bytes in whole words, and a command's encoder."""
        self._number = (self._number + 1) % len(self._turns)
        turn = self._turn
        self._wait(turn)
        buffer = turn.buffer = turn.buffer or self._device.new_buffer(self._n_bytes, host=True)
        padded = -(-len(piece) // 4) * 4
        share = max(-(-len(piece) // self._n_parts), LEAST_COPIED)
        parts = [slice(start, min(start + share, len(piece))) for start in range(0, len(piece), share)]
        turn.fills = [self._copying.submit(np.copyto, buffer.contents[part], piece[part]) for part in parts]
        buffer.contents[len(piece) : padded] = 0
        turn.command = self._device.new_command_buffer()
        self._filling.append(turn)
        return buffer, padded, turn.command.encoder()

    @property
    def _turn(self) -> _Turn:
        return self._turns[self._number]

    def _commit(self, encoder: Encoder) -> None:
        """End the recorded command, and commit those whose buffers are filled."""
        encoder.end()
        while self._filling and all(fill.done() for fill in self._filling[0].fills):
            self._commit_filled()

    def _commit_filled(self) -> None:
        """Commit the first command that is not, once its buffer is filled."""
        turn = self._filling.popleft()
        fills, turn.fills = turn.fills, []
        assert turn.command is not None
        try:
            for fill in fills:
                fill.result()
            turn.command.commit()
        except BaseException:  # such as Ctrl-C
            turn.command.close()
            turn.command = None
            raise

    def _wait(self, turn: _Turn) -> None:
        """Wait until the buffer of a turn can be filled again."""
        while turn in self._filling:
            self._commit_filled()
        if turn.command is not None:
            try:
                turn.command.wait(spins=False)  # copies take milliseconds, and another thread may record steps
            finally:
                turn.command.close()
                turn.command = None

    def wait(self) -> None:
        """Wait until all written bytes are on the device."""
        for turn in self._turns:
            self._wait(turn)

    def close(self) -> None:
        """Free the buffers, once no thread fills them. What is not committed yet is not copied."""
        self._copying.shutdown(cancel_futures=True)
        for turn in self._filling:
            if turn.command is not None:
                turn.command.close()
                turn.command = None
        self._filling.clear()
        for turn in self._turns:
            with contextlib.suppress(BackendError):  # of a lost device, which the upload has raised
                self._wait(turn)
            for buffer in (turn.buffer, turn.raw):
                if buffer is not None:
                    buffer.close()
        for pipeline in self._pipelines.values():
            pipeline.close()


@dataclass(eq=False)
class _Turn:
    """A buffer of a ring: ``fills`` write to it before ``command`` copies from it, by ``raw`` if kernels repack it."""

    buffer: Buffer | None = None
    raw: Buffer | None = None
    fills: list[Future[None]] = field(default_factory=list)
    command: CommandBuffer | None = None


def _pieces(chunks: Iterable[NDArray[np.generic]], most: int) -> Iterator[NDArray[np.uint8]]:
    """Yield bytes of arrays in pieces that fit. All chunks but the last must be whole words."""
    for chunk in chunks:
        flat = np.ascontiguousarray(chunk).reshape(-1).view(np.uint8)
        for start in range(0, len(flat), most):
            yield flat[start : start + most]
