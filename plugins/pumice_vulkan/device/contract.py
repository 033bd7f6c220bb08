"""What a driver offers the backend, in Metal's vocabulary: devices, buffers, pipelines and command buffers.

docs/architecture.md says what each word is in Vulkan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_BUFFER_BYTES = 2**32 - 16
"""Sizes and offsets in shaders are 32-bit, and sizes are whole words of 16 bytes."""


@dataclass(frozen=True)
class MatrixShape:
    """A cooperative matrix product of a subgroup, ``A [m, k] B [k, n] + C [m, n]``.

    ``a`` (also the type of B) and ``c`` (also the result's) are "float16", "float32", "int8", "uint8", "int32" ...
    """

    m: int
    n: int
    k: int
    a: str
    c: str


@dataclass(frozen=True)
class DeviceDescription:
    """What is known of a device before it is opened.

    ``features`` holds the names of what shaders may use: ``float16``, ``int8``, ``int16``, ``int64``, ``storage8``,
    ``storage16``, ``integer_dot_product`` and, where 4x8 bits have an instruction, ``integer_dot_product_fast``,
    ``cooperative_matrix``, ``vulkan_memory_model``, ``timeline_semaphore``, ``subgroup_size_control``, and
    ``subgroup_arithmetic``, ``subgroup_ballot``, ``subgroup_shuffle``, ``subgroup_shuffle_relative``,
    ``subgroup_clustered``, ``subgroup_vote``.
    """

    index: int  # in ``list_devices``: discrete GPUs first, software last
    loader_index: int  # among the loader's physical devices
    name: str
    driver: str  # of this layer: "native" or "kompute"
    vulkan_driver: str  # of the system, with its version
    vendor: str
    uuid: str  # "8932f937-d72c-4106-c12f-20bd9faed9f6": NVIDIA's tools call that one GPU-8932f937-...
    type: str  # "discrete", "integrated", "virtual", "cpu" or "other"
    api_version: str  # "1.3.280"
    memory_bytes: int  # the largest device-local heap
    subgroup_size: int
    max_buffer_bytes: int
    max_threadgroups: tuple[int, int, int]
    max_threads_per_threadgroup: int
    threadgroup_memory_bytes: int  # that the threads of a threadgroup share
    push_constant_bytes: int
    timestamp_period_ns: float  # 0: no timestamps
    features: frozenset[str]
    cooperative_matrices: tuple[MatrixShape, ...]

    @property
    def software(self) -> bool:
        """Whether it is a software rasterizer: the processor plays the device."""
        return self.type == "cpu"


class Buffer(ABC):
    """Memory that shaders read and write as whole words."""

    n_bytes: int
    host: bool

    @property
    @abstractmethod
    def contents(self) -> NDArray[np.uint8]:
        """The memory of a host buffer, uint8 ``[n_bytes]``; ValueError for any other.

        What is written here is seen by command buffers committed later, and what they wrote is here after
        ``wait``. While one that uses the buffer runs, hands off.
        """

    @abstractmethod
    def close(self) -> None:
        """Free the memory. Command buffers that use it must not be committed again."""


class ComputePipeline(ABC):
    """A compiled shader with its specialization constants."""

    n_buffers: int
    push_bytes: int

    @abstractmethod
    def close(self) -> None:
        """Free it. Command buffers that use it must not be committed again."""


class Encoder(ABC):
    """Records commands. Only ``barrier`` orders them: without one between them they may run together."""

    @abstractmethod
    def set_pipeline(self, pipeline: ComputePipeline) -> None:
        """Later dispatches run this pipeline. Buffers and push constants that are set stay."""

    @abstractmethod
    def set_buffer(self, index: int, buffer: Buffer) -> None:
        """Bind a whole buffer to ``layout(set = 0, binding = index)``."""

    @abstractmethod
    def set_bytes(self, data: bytes | NDArray[np.uint32]) -> None:
        """The push constants of later dispatches; as many bytes as their pipelines declare."""

    @abstractmethod
    def dispatch_threadgroups(self, x: int, y: int = 1, z: int = 1) -> None:
        """Run the pipeline on a grid of threadgroups."""

    @abstractmethod
    def copy_buffer(self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, n_bytes: int) -> None:
        """Copy bytes; offsets and size are multiples of 4. Ordered like a dispatch: by barriers alone."""

    @abstractmethod
    def barrier(self) -> None:
        """Everything recorded before ends, and its writes are visible, before anything after begins."""

    @abstractmethod
    def timestamp(self, index: int) -> None:
        """Note the time when everything recorded before has ended."""

    @abstractmethod
    def end(self) -> None:
        """Close the recording; the command buffer can be committed."""


class CommandBuffer(ABC):
    """Commands recorded once and committed many times.

    Command buffers of a device run in the order of their commits, each seeing what the earlier ones wrote.
    """

    @abstractmethod
    def encoder(self) -> Encoder:
        """Begin recording; once for a command buffer."""

    @abstractmethod
    def commit(self) -> None:
        """Submit, without waiting for the end; but first for the end of this command buffer's last commit."""

    def hold(self) -> None:  # noqa: B027
        """Submit already what the next ``commit`` begins, where the driver can: then that takes less time.

        One command buffer of a device is held at a time. It also begins when something else is committed to the device,
        and then once more when it is committed itself. What the host writes until it begins is seen.
        """

    @abstractmethod
    def wait(self) -> None:
        """Until the last commit has ended. Raises BackendError if the device was lost."""

    def commit_and_wait(self) -> None:
        self.commit()
        self.wait()

    @abstractmethod
    def timestamps(self) -> list[float]:
        """Microseconds from the first timestamp to each, of the last commit that has ended."""

    @abstractmethod
    def close(self) -> None:
        """Free it, after the end of its last commit."""


class Device(ABC):
    """An open device with one queue. What it made is closed with it."""

    description: DeviceDescription
    runs_behind: bool = True  # a commit does not wait for the end

    @property
    def name(self) -> str:
        return self.description.name

    @property
    def memory_bytes(self) -> int:
        return self.description.memory_bytes

    @property
    def subgroup_size(self) -> int:
        return self.description.subgroup_size

    @property
    def max_buffer_bytes(self) -> int:
        return self.description.max_buffer_bytes

    @property
    def max_threadgroups(self) -> tuple[int, int, int]:
        return self.description.max_threadgroups

    @property
    def threadgroup_memory_bytes(self) -> int:
        return self.description.threadgroup_memory_bytes

    @property
    def push_constant_bytes(self) -> int:
        return self.description.push_constant_bytes

    @property
    def timestamp_period_ns(self) -> float:
        return self.description.timestamp_period_ns

    @property
    def features(self) -> frozenset[str]:
        return self.description.features

    @property
    def cooperative_matrices(self) -> tuple[MatrixShape, ...]:
        return self.description.cooperative_matrices

    @property
    @abstractmethod
    def n_allocations(self) -> int:
        """Buffers that are open."""

    @property
    @abstractmethod
    def allocated_bytes(self) -> int:
        """Bytes in them."""

    @property
    @abstractmethod
    def free_memory_bytes(self) -> int:
        """Device memory that this process can still allocate, as far as the driver says."""

    @abstractmethod
    def new_buffer(self, n_bytes: int, *, host: bool = False) -> Buffer:
        """Memory of the device, or with ``host`` memory that the host sees, too. Its bytes are undefined.

        Raises BackendError if it is larger than ``max_buffer_bytes`` or memory runs out.
        """

    @abstractmethod
    def new_pipeline(
        self,
        spirv: bytes,
        n_buffers: int,
        push_bytes: int,
        constants: Sequence[int] = (),
        *,
        full_subgroups: bool = False,
    ) -> ComputePipeline:
        """Compile a shader: entry point ``main``, storage buffers at set 0, bindings 0 to ``n_buffers - 1``.

        ``constants`` are the specialization constants 0, 1, ... as uint32 words; the size of a threadgroup may be
        among them. ``full_subgroups`` asks that every subgroup has all its threads, where the device can promise
        it; the threadgroup's x size must then be a multiple of the subgroup size. Raises BackendError for code that is
        not SPIR-V, needs what the device lacks, or does not compile.
        """

    @abstractmethod
    def new_command_buffer(self, timestamps: int = 0) -> CommandBuffer:
        """An empty command buffer with room for that many timestamps."""

    @abstractmethod
    def close(self) -> None:
        """Wait until the device is idle, then free it and everything it made."""

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
