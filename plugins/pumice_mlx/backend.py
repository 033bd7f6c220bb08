"""The MLX backend: device detection, placement, and the objects shared by a model's programs."""

from __future__ import annotations

import glob
import importlib.metadata
import importlib.util
import os
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pumice.plugin import Weight
from pumice.plugin.unstable import (
    Access,
    Backend,
    DeviceInfo,
    KVState,
    Limits,
    MemoryPlan,
    Node,
    Program,
    Segment,
    State,
    install_command,
)

if TYPE_CHECKING:
    from pumice_mlx.nodes import Shared

RESERVE = 512 * 2**20  # bytes of GPU memory reserved for activations and other uses
_ABOUT_DEVICES = ("/proc/devices", "/proc/driver", "/proc/modules", "/sys/bus", "/sys/devices", "/sys/module")


@dataclass
class MlxOptions:
    """Configuration section ``mlx``."""

    activations: Literal["auto", "float32", "float16"] = "auto"  # in products; "auto": float16 on a GPU
    compile: Literal["auto", "always", "never"] = "auto"  # steps that generate, by MLX; "auto": on a GPU


class MlxBackend(Backend):
    """The backend for the device that MLX finds: Apple's GPU, an NVIDIA GPU, or the CPU."""

    offload = True
    Options = MlxOptions

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._shared: Shared | None = None

    @classmethod
    def unavailable(cls) -> str | None:
        if importlib.util.find_spec("mlx") is None:
            return f"MLX is not installed: {install_command('mlx')}"
        try:
            import mlx.core  # noqa: F401 - the package alone brings no device on Linux
        except ImportError as error:
            return f"MLX cannot be loaded ({error}); on Linux install 'mlx[cuda13]' or 'mlx[cpu]'"
        return None

    @classmethod
    def automatic(cls) -> bool:
        return platform.system() == "Darwin" and platform.machine() == "arm64"

    @classmethod
    def access(cls) -> Access:
        """Return the paths that CUDA opens: NVIDIA's devices, and headers for kernels that MLX compiles."""
        toolkits = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
        return Access(read=(*_ABOUT_DEVICES, "/usr/local/cuda", *toolkits), devices=tuple(glob.glob("/dev/nvidia*")))

    @classmethod
    def devices(cls) -> list[DeviceInfo]:
        from pumice_mlx.device import describe

        name, is_gpu, n_bytes, details = describe()
        details = {"mlx": importlib.metadata.version("mlx"), **details}
        if not cls.automatic():
            details["note"] = "selected with `--backend mlx`; `auto` selects it only on Apple's machines"
        return [DeviceInfo(name, "gpu" if is_gpu else "cpu", n_bytes, details)]

    def supports(self, node: Node, limits: Limits) -> bool:
        from pumice_mlx.nodes import claims

        return claims(node, limits)

    def free_memory(self) -> list[int | None]:
        from pumice_mlx.device import free_memory

        free = free_memory()
        return [None if free is None else max(free - RESERVE, 0)]

    def shares_host_memory(self) -> bool:
        return True

    def footprint(self, held: Weight | State, limits: Limits) -> int:
        from pumice_mlx.kv_cache import state_bytes
        from pumice_mlx.weights import matrix_bytes

        if isinstance(held, Weight):
            return matrix_bytes(held, self._share().weights.activations)
        return state_bytes(held, limits) if isinstance(held, KVState) else super().footprint(held, limits)

    def compile(self, segment: Segment, plan: MemoryPlan, limits: Limits) -> Program:
        from pumice_mlx.program import MlxProgram

        return MlxProgram(self._share(), segment, limits)

    def close(self) -> None:
        from pumice_mlx.device import release

        self._shared = None
        release()

    def _share(self) -> Shared:
        from pumice_mlx.nodes import Shared

        if self._shared is None:
            self._shared = Shared.of(self.options.activations, self.options.compile)
        return self._shared
