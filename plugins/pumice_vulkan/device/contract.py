"""The interface between drivers and the backend in Metal's vocabulary: devices, buffers, pipelines, command buffers.

README.md of this plugin maps the terms to Vulkan's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_BUFFER_BYTES = 2**32 - 16
"""Limit of buffer sizes: sizes and offsets in shaders are 32-bit, and sizes are multiples of 16 bytes."""


def version(text: str) -> tuple[int, ...]:
    """Return a version of Vulkan, such as "1.3.280", as numbers."""
    return tuple(map(int, text.split(".")))


@dataclass(frozen=True)
class MatrixShape:
    """A cooperative matrix product of a subgroup, ``A [m, k] B [k, n] + C [m, n]``.

    ``a`` (also B's type) and ``c`` (also the result's type) are "float16", "float32", "int8", "uint8", "int32" ...
    """

    m: int
    n: int
    k: int
    a: str
    c: str


@dataclass(frozen=True)
class DeviceDescription:
    """Properties of a device before it is opened.

    ``features`` are names of optional shader features: ``float16``, ``int8``, ``int16``, ``int64``, ``storage8``,
    ``storage16``, ``integer_dot_product`` and, if 4x8 bits have an instruction, ``integer_dot_product_fast``,
    ``cooperative_matrix``, ``vulkan_memory_model``, ``timeline_semaphore``, ``subgroup_size_control``, and
    ``subgroup_arithmetic``, ``subgroup_ballot``, ``subgroup_shuffle``, ``subgroup_shuffle_relative``,
    ``subgroup_clustered``, ``subgroup_vote``, ``buffer_address``.
    """

    index: int  # in ``list_devices``: discrete GPUs first, software last
    loader_index: int  # index among the loader's physical devices
    name: str
    driver: str  # driver of this layer: "native" or "kompute"
    vulkan_driver: str  # Vulkan driver of the system, with its version
    vendor: str
    uuid: str  # "8932f937-d72c-4106-c12f-20bd9faed9f6": GPU-8932f937-... in NVIDIA's tools
    type: str  # "discrete", "integrated", "virtual", "cpu" or "other"
    api_version: str  # "1.3.280"
    memory_bytes: int  # size of the largest device-local heap
    subgroup_size: int
    max_buffer_bytes: int
    max_threadgroups: tuple[int, int, int]
    max_threads_per_threadgroup: int
    threadgroup_memory_bytes: int  # shared memory per threadgroup
    push_constant_bytes: int
    timestamp_period_ns: float  # 0: no timestamps
    features: frozenset[str]
    cooperative_matrices: tuple[MatrixShape, ...]
    avoided: frozenset[str] = frozenset()  # kernels and features that are not used because of a quirk
    max_buffers: int = 16  # that a shader binds
    subgroup_sizes: tuple[int, int] = (0, 0)  # least and most that pipelines may ask for; equal: there is no choice
    most_dispatches: int = 0  # in a submit, since a watchdog of the system ends long ones; 0: any number
    most_work: int = 0  # multiplications in such a submit, unless one dispatch has more; 0: any number
    driver_id: int = 0  # ``DriverId``; 0: unknown
    driver_version: tuple[int, ...] = ()  # as its vendor writes it; empty: unknown, taken to be the newest
    limited: bool = False  # the device stands for a smaller one, so its pipelines are checked against these limits

    @property
    def software(self) -> bool:
        """True for a software rasterizer, which runs on the CPU."""
        return self.type == "cpu"


class Buffer(ABC):
    """Memory that shaders read and write in whole words."""

    n_bytes: int
    host: bool

    @property
    @abstractmethod
    def contents(self) -> NDArray[np.uint8]:
        """The memory of a host buffer, uint8 ``[n_bytes]``. Raises ValueError for other buffers.

        Writes are visible to command buffers committed later; their results are visible after ``wait``. Must not be
        accessed while a command buffer that uses the buffer runs.
        """

    @property
    def address(self) -> int:
        """Address by which shaders read an unbound buffer of the device; 0 if the device lacks ``buffer_address``."""
        return 0

    @abstractmethod
    def close(self) -> None:
        """Free the memory. Command buffers that use it must not be committed again."""


class ComputePipeline(ABC):
    """A compiled shader with its specialization constants."""

    n_buffers: int
    push_bytes: int

    @abstractmethod
    def close(self) -> None:
        """Free the pipeline. Command buffers that use it must not be committed again."""


@dataclass(eq=False)
class Launch:
    """A dispatch with its arguments, which can be recorded many times."""

    pipeline: ComputePipeline
    buffers: tuple[Buffer, ...]
    push: bytes
    grid: tuple[int, int, int]
    work: int = 0  # multiplications
    bound: object = None  # state that a driver keeps from the first recording


class Encoder(ABC):
    """Records commands. Only ``barrier`` orders them; commands without a barrier between them may overlap."""

    @abstractmethod
    def set_pipeline(self, pipeline: ComputePipeline) -> None:
        """Select the pipeline of later dispatches. Buffers and push constants are kept."""

    @abstractmethod
    def set_buffer(self, index: int, buffer: Buffer) -> None:
        """Bind a whole buffer to ``layout(set = 0, binding = index)``."""

    @abstractmethod
    def set_bytes(self, data: bytes | NDArray[np.uint32]) -> None:
        """Set the push constants of later dispatches, with the size that their pipelines declare."""

    @abstractmethod
    def dispatch_threadgroups(self, x: int, y: int = 1, z: int = 1) -> None:
        """Run the pipeline on a grid of threadgroups."""

    def launch(self, launch: Launch) -> None:
        """Set a launch's pipeline, buffers and push constants, and dispatch it."""
        self.set_pipeline(launch.pipeline)
        for index, buffer in enumerate(launch.buffers):
            self.set_buffer(index, buffer)
        self.set_bytes(launch.push)
        self.dispatch_threadgroups(*launch.grid)

    @abstractmethod
    def copy_buffer(self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, n_bytes: int) -> None:
        """Copy bytes; offsets and size are multiples of 4. Ordered only by barriers, like a dispatch."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait until all earlier commands have ended and their writes are visible before later ones start."""

    @abstractmethod
    def timestamp(self, index: int) -> None:
        """Record the time when all earlier commands have ended."""

    @abstractmethod
    def end(self) -> None:
        """End the recording; the command buffer can be committed."""


class CommandBuffer(ABC):
    """Commands recorded once and committed many times.

    Command buffers of a device run in the order of their commits and see the writes of earlier ones.
    """

    @abstractmethod
    def encoder(self) -> Encoder:
        """Start recording; only once per command buffer."""

    @abstractmethod
    def commit(self) -> None:
        """Submit without waiting for completion, except of this command buffer's last commit."""

    def hold(self) -> None:  # noqa: B027
        """Submit the command buffer ahead, to be started by the next ``commit``, which then takes less time.

        A device holds one command buffer at a time. It also starts when another one is committed to the device, and
        then runs again when it is committed itself. Writes of the host before it starts are visible. A driver may
        ignore this.
        """

    @abstractmethod
    def wait(self, spins: bool = True) -> None:
        """Wait for the last commit, if ``spins`` by asking again and again at first.

        Raises BackendError if the device was lost.
        """

    def commit_and_wait(self) -> None:
        self.commit()
        self.wait()

    @abstractmethod
    def timestamps(self) -> list[float]:
        """Return the microseconds from the first timestamp to each, for the last completed commit."""

    @abstractmethod
    def close(self) -> None:
        """Free the command buffer after its last commit has ended."""
