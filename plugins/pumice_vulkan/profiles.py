"""Devices that others have reported: ``vulkan.profile`` restricts the device at hand to what one of them offers.

A report is the line that llama.cpp writes about a device: its name and driver, subgroup size, bytes of shared memory,
float16, integer dot products and matrix units. What it leaves out is the least that Vulkan guarantees, but for
subgroup operations and the memory model, which are assumed, workgroups of 256 invocations, which all but the oldest
Mali have (gpuweb/gpuweb#1898), and 16 buffers for a shader. llama.cpp needs Vulkan 1.2, so that each device has it; a
driver with matrix units has 1.3, which came before them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from pumice.plugin import BackendError
from pumice_vulkan.device import DeviceDescription, MatrixShape
from pumice_vulkan.device.contract import MAX_BUFFER_BYTES, version
from pumice_vulkan.device.driver_ids import DriverId
from pumice_vulkan.quirks import without_quirks

_DRIVERS = {
    "AMD proprietary": DriverId.AMD_PROPRIETARY,
    "AMD open-source": DriverId.AMD_OPEN_SOURCE,
    "radv": DriverId.RADV,
    "NVIDIA": DriverId.NVIDIA,
    "Intel Corporation": DriverId.INTEL_WINDOWS,
    "Intel open-source": DriverId.INTEL_MESA,
    "Qualcomm": DriverId.QUALCOMM,
    "Mali": DriverId.ARM,
    "v1.r": DriverId.ARM,
    "SwiftShader": DriverId.SWIFTSHADER,
    "llvmpipe": DriverId.LLVMPIPE,
    "MoltenVK": DriverId.MOLTENVK,
    "turnip": DriverId.TURNIP,
    "V3DV": DriverId.V3DV,
    "panvk": DriverId.PANVK,
    "Honeykrisp": DriverId.HONEYKRISP,
}
"""Drivers by how the names that llama.cpp writes begin; reports do not have their identifiers."""

LEAST_SHARED, LEAST_PUSH, LEAST_BUFFER = 16384, 128, 2**27  # bytes; Vulkan 1.3 specification, table "Required Limits"
LEAST_GROUPS = (65535, 65535, 65535)
THREADS = 256

ASSUMED = frozenset(
    {
        *("vulkan_memory_model", "vulkan_memory_model_device", "timeline_semaphore", "int16"),
        *("subgroup_vote", "subgroup_arithmetic", "subgroup_ballot", "subgroup_shuffle", "subgroup_shuffle_relative"),
    }
)
HALF = frozenset({"float16", "storage16", "storage8", "int8"})
DOT = frozenset({"integer_dot_product", "integer_dot_product_fast"})
MATRICES = frozenset({"cooperative_matrix"})
SIZES = frozenset({"subgroup_size_control", "full_subgroups"})
SQUARE = (MatrixShape(16, 16, 16, "float16", "float32"), MatrixShape(16, 16, 16, "float16", "float16"))
WIDE = (MatrixShape(8, 16, 16, "float16", "float32"),)  # Intel's since Xe2


@dataclass(frozen=True)
class Profile:
    """A reported device; ``source``: where."""

    device: str
    vulkan_driver: str
    vendor: str
    subgroup_size: int
    source: str
    features: frozenset[str] = HALF
    shared: int = LEAST_SHARED
    matrices: tuple[MatrixShape, ...] = ()
    type: str = "discrete"
    threads: int = THREADS
    buffer: int = LEAST_BUFFER
    vulkan: str = ""  # version, if known
    driver_version: tuple[int, ...] = ()  # if known
    subgroup_sizes: tuple[int, int] = (0, 0)  # that pipelines may ask for; of Mesa and AMD by generation
    lacking: frozenset[str] = frozenset()  # of what is assumed

    @property
    def api(self) -> str:
        return self.vulkan or ("1.3.0" if self.matrices else "1.2.0")

    @property
    def driver_id(self) -> DriverId:
        drivers = (driver for name, driver in _DRIVERS.items() if self.vulkan_driver.startswith(name))
        return next(drivers, DriverId.UNKNOWN)

    @property
    def all_features(self) -> frozenset[str]:
        sizes = SIZES if self.subgroup_sizes != (0, 0) else frozenset[str]()
        return (ASSUMED - self.lacking) | self.features | sizes | (MATRICES if self.matrices else frozenset())

    def described(self, memory_bytes: int = 2**32) -> DeviceDescription:
        """Return the device, with ``memory_bytes`` of memory."""
        return DeviceDescription(
            index=0,
            loader_index=0,
            name=self.device,
            driver="native",
            vulkan_driver=self.vulkan_driver,
            vendor=self.vendor,
            uuid="",
            type=self.type,
            api_version=self.api,
            memory_bytes=memory_bytes,
            subgroup_size=self.subgroup_size,
            max_buffer_bytes=self.buffer,
            max_threadgroups=LEAST_GROUPS,
            max_threads_per_threadgroup=self.threads,
            threadgroup_memory_bytes=self.shared,
            push_constant_bytes=LEAST_PUSH,
            timestamp_period_ns=1.0,
            features=self.all_features,
            cooperative_matrices=self.matrices,
            subgroup_sizes=self.subgroup_sizes if any(self.subgroup_sizes) else (self.subgroup_size,) * 2,
            driver_id=self.driver_id,
            driver_version=self.driver_version,
            limited=True,
        )


def _amd(device: str, driver: str, size: int, source: str, **more: object) -> Profile:
    profile = Profile(device, driver, "AMD", size, source)
    if driver == "radv":  # Mesa, radv_physical_device.c
        profile = replace(profile, buffer=MAX_BUFFER_BYTES, threads=1024)
    return replace(profile, **more)  # type: ignore[arg-type]


def _rdna(device: str, driver: str, size: int, source: str, **more: object) -> Profile:
    return replace(_amd(device, driver, size, source, **more), subgroup_sizes=(32, 64))


def _intel(device: str, driver: str, source: str, **more: object) -> Profile:
    return replace(Profile(device, driver, "Intel", 32, source, subgroup_sizes=(8, 32)), **more)  # type: ignore[arg-type]


def _xe2(device: str, driver: str, source: str, **more: object) -> Profile:
    return replace(_intel(device, driver, source, **more), subgroup_sizes=(16, 32))


def _nvidia(device: str, source: str, **more: object) -> Profile:
    profile = Profile(device, "NVIDIA", "NVIDIA", 32, source, HALF | DOT, 49152, SQUARE, threads=1024)
    return replace(profile, **more)  # type: ignore[arg-type]


def _apple(device: str, source: str, **more: object) -> Profile:
    return replace(Profile(device, _MOLTEN, "Apple", 32, source, type="integrated"), **more)  # type: ignore[arg-type]


def _asahi(device: str, source: str, **more: object) -> Profile:
    return replace(Profile(device, "Honeykrisp", "Mesa", 32, source, type="integrated"), **more)  # type: ignore[arg-type]


_LLAMA = "ggml-org/llama.cpp#"
_NONE: frozenset[str] = frozenset()
_PROPRIETARY, _AMDVLK = "AMD proprietary driver", "AMD open-source driver"
_MESA, _WINDOWS = "Intel open-source Mesa driver", "Intel Corporation"
_MOLTEN = "MoltenVK"

PROFILES = {
    "gcn4-rx550-windows": _amd("Radeon RX 550 Series", _PROPRIETARY, 64, _LLAMA + "23311", features=_NONE),
    "gcn5-pro-vii-radv": _amd("AMD Radeon (TM) Pro VII (RADV VEGA20)", "radv", 64, _LLAMA + "12015", shared=65536),
    "gcn5-vega8-windows": _amd(
        "AMD Radeon(TM) Graphics", _PROPRIETARY, 64, _LLAMA + "26163", shared=32768, type="integrated"
    ),
    "rdna1-rx5700xt-radv": _rdna("AMD Radeon RX 5700 XT (RADV NAVI10)", "radv", 64, _LLAMA + "13324", shared=65536),
    "rdna1-rx5700xt-amdvlk": _rdna("AMD Radeon RX 5700 XT", _AMDVLK, 32, _LLAMA + "13324", shared=32768),
    "rdna1-pro5500m-moltenvk": _amd("AMD Radeon Pro 5500M", _MOLTEN, 64, "ollama/ollama#1016", shared=65536),
    "rdna2-rx6700xt-radv": _rdna(
        "AMD Radeon RX 6700 XT (RADV NAVI22)", "radv", 64, "geerlingguy/raspberry-pi-pcie-devices#680"
    ),
    "rdna2-rx6800xt-moltenvk": _amd("AMD Radeon RX 6800 XT", _MOLTEN, 64, "ollama/ollama#1016", shared=65536),
    "rdna3-rx7900xtx-radv": _rdna(
        *("AMD Radeon RX 7900 XTX (RADV NAVI31)", "radv", 64, _LLAMA + "27952"),
        features=HALF | DOT,
        shared=65536,
        matrices=SQUARE,
    ),
    "rdna35-8060s-radv": _rdna(
        *("Radeon 8060S Graphics (RADV GFX1151)", "radv", 64, _LLAMA + "18749"),
        features=HALF | DOT,
        shared=65536,
        matrices=SQUARE,
        type="integrated",
    ),
    "rdna35-8060s-amdvlk": _rdna(
        "Radeon 8060S", _AMDVLK, 64, "GPUOpen-Drivers/AMDVLK#420", shared=32768, type="integrated"
    ),
    "rdna4-rx9070xt-windows": _rdna(
        *("AMD Radeon RX 9070 XT", _PROPRIETARY, 64, _LLAMA + "26663"),
        features=HALF | DOT,
        shared=32768,
        matrices=SQUARE,
    ),
    "rdna4-rx9070xt-radv": _rdna(
        "AMD Radeon Graphics (RADV GFX1201)", "radv", 64, "geerlingguy/ai-benchmarks#25", shared=65536
    ),
    "gen9-uhd630-mesa": _intel("Intel(R) UHD Graphics 630 (CFL GT2)", _MESA, _LLAMA + "17056", type="integrated"),
    "xe-adl-gt2-mesa": _intel("Intel(R) Graphics (ADL GT2)", _MESA, "0xShug0/audio.cpp#524", type="integrated"),
    "xe-a770-mesa": _intel("Intel(R) Arc(tm) A770 Graphics (DG2)", _MESA, _LLAMA + "11595", shared=65536),
    "xe-a770-windows": _intel("Intel(R) Arc(TM) A770 Graphics", _WINDOWS, _LLAMA + "14001", shared=32768),
    "xe-mtl-mesa": _intel(
        *("Intel(R) Arc(tm) Graphics (MTL)", _MESA, _LLAMA + "16463"),
        features=HALF | DOT,
        shared=65536,
        type="integrated",
    ),
    "xe2-130v-windows": _xe2(
        *("Intel(R) Arc(TM) 130V GPU (16GB)", _WINDOWS, "ollama/ollama#13153"),
        features=HALF | DOT,
        shared=32768,
        matrices=WIDE,
        type="integrated",
    ),
    "xe2-lnl-mesa": _xe2(
        *("Intel(R) Graphics (LNL)", _MESA, _LLAMA + "14001"),
        features=HALF | DOT,
        shared=131072,
        type="integrated",
    ),
    "xe2-b50-mesa": _xe2(
        *("Intel(R) Arc(tm) Pro B50 Graphics (BMG G21)", _MESA, _LLAMA + "25380"),
        features=HALF | DOT,
        shared=49152,
        matrices=WIDE,
    ),
    "xe2-b60-windows": _xe2(
        *("Intel(R) Arc(TM) Pro B60 Graphics", _WINDOWS, _LLAMA + "17374"),
        features=HALF | DOT,
        shared=49152,
        matrices=WIDE,
    ),
    "adreno-750-qualcomm": Profile(
        *("Adreno (TM) 750", "Qualcomm Technologies Inc. Adreno Vulkan Driver", "Qualcomm", 64, _LLAMA + "8743"),
        type="integrated",
    ),
    "adreno-750-turnip": Profile(
        *("Turnip Adreno (TM) 750", "turnip Mesa driver", "Qualcomm", 128, "ggml-org/ggml#1287", HALF, 32768),
        type="integrated",
    ),
    "adreno-x1-85-turnip": Profile(
        *("Adreno X1-85", "turnip Mesa driver", "Qualcomm", 128, _LLAMA + "22690", HALF | DOT, 32768),
        type="integrated",
    ),
    "mali-g720-arm": Profile(
        *("Mali-G720-Immortalis MC12", "v1.r44p1", "Arm", 16, _LLAMA + "27163", HALF | DOT, 32768),
        type="integrated",
    ),
    "mali-g720-panvk": Profile(
        *("Mali-G720-Immortalis", "panvk", "Arm", 16, _LLAMA + "17783", HALF, 32768), type="integrated"
    ),
    "mali-g1-ultra-arm": Profile(*("Mali-G1-Ultra MC12", "Mali", "Arm", 16, _LLAMA + "28637"), type="integrated"),
    "v3d-71-mesa": Profile(*("V3D 7.1.10.2", "V3DV Mesa", "Broadcom", 16, _LLAMA + "26213", _NONE), type="integrated"),
    "apple-m1-pro-moltenvk": _apple("Apple M1 Pro", _LLAMA + "11256"),
    "apple-m3-moltenvk": _apple("Apple M3", "NVIDIA-RTX/NRI#105"),
    "apple-m4-max-moltenvk": _apple("Apple M4 Max", _LLAMA + "14316", shared=32768),
    "apple-m1-ultra-honeykrisp": _asahi("Apple M1 Ultra (G13D C0)", _LLAMA + "24306", shared=32768),
    "apple-m2-honeykrisp": _asahi("Apple M2 (G14G B0)", _LLAMA + "28035"),
    "maxwell-gtx960": _nvidia(
        "NVIDIA GeForce GTX 960",
        "kainino0x/gpuinfo-vulkan-query#2",
        features=_NONE,
        shared=LEAST_SHARED,
        matrices=(),
        threads=THREADS,
    ),
    "pascal-gtx1070": _nvidia("NVIDIA GeForce GTX 1070", "PrismML-Eng/llama.cpp#247", features=_NONE, matrices=()),
    "turing-rtx2070-old-driver": _nvidia("NVIDIA GeForce RTX 2070", _LLAMA + "13324", features=HALF, matrices=()),
    "turing-rtx2060super": _nvidia("NVIDIA GeForce RTX 2060 SUPER", _LLAMA + "15813", features=HALF),
    "ampere-rtx3070": _nvidia("NVIDIA GeForce RTX 3070", _LLAMA + "12833"),
    "ampere-rtx3090": _nvidia("NVIDIA GeForce RTX 3090", _LLAMA + "11595"),
    "ada-rtx4070": _nvidia("NVIDIA GeForce RTX 4070", _LLAMA + "14903"),
    "hopper-h200": _nvidia("NVIDIA H200", "measured, bench/notes/performance.md"),
    "blackwell-rtx5090": _nvidia("NVIDIA GeForce RTX 5090", _LLAMA + "15546"),
    "swiftshader": Profile(  # its source, VkPhysicalDevice.cpp and VkConfig.hpp
        *("SwiftShader Device (LLVM 16.0.0)", "SwiftShader driver", "Google", 4, "google/swiftshader@7868bf37d"),
        features=frozenset({"integer_dot_product"}),
        lacking=frozenset({"int16"}),
        shared=32768,
        buffer=2**30,
        type="cpu",
        vulkan="1.3.0",
        subgroup_sizes=(4, 4),
    ),
    "lavapipe-4": Profile(
        *("llvmpipe", "llvmpipe Mesa", "Mesa", 4, "LP_NATIVE_VECTOR_WIDTH=128", HALF, 32768),
        type="cpu",
        vulkan="1.3.230",
    ),
    "lavapipe-8": Profile(
        *("llvmpipe", "llvmpipe Mesa", "Mesa", 8, "Mesa 22.3", HALF, 32768), type="cpu", vulkan="1.3.230"
    ),
    "lavapipe-16": Profile(
        *("llvmpipe", "llvmpipe Mesa", "Mesa", 16, "LP_NATIVE_VECTOR_WIDTH=512", HALF, 32768),
        type="cpu",
        vulkan="1.3.230",
    ),
    "lavapipe-8-mesa25": Profile(
        *("llvmpipe (LLVM 20.1.8, 256 bits)", "llvmpipe", "Mesa", 8, _LLAMA + "19846", MATRICES, 32768), type="cpu"
    ),
}


def find_profile(name: str) -> Profile:
    """Return a profile, or that in a file of ``pumice doctor --report``. Raises BackendError for an unknown name."""
    if name.endswith(".json"):
        return _reported(Path(name))
    if name not in PROFILES:
        raise BackendError(f"vulkan: unknown profile {name!r}; choose one of {', '.join(PROFILES)}")
    return PROFILES[name]


def _matrix_shape(text: str) -> MatrixShape:
    """Return the shape that ``VulkanBackend.facts`` writes."""
    size, a, c = text.replace(" to ", " ").split(" ")
    m, n, k = map(int, size.split("x"))
    return MatrixShape(m, n, k, a, c)


def _reported(path: Path) -> Profile:
    """Return the first device of the backend in a report. Raises BackendError."""
    try:
        devices = json.loads(path.read_bytes())["devices"]
        device = next(device for device in devices if device["label"].startswith("vulkan"))
        facts = device["facts"]
        least, most = map(int, facts["subgroup_sizes"])
        features = frozenset(facts["features"])
        return Profile(
            *(device["name"], facts["driver"].partition(" on ")[2], facts["vendor"], facts["subgroup_size"], str(path)),
            features=features,
            shared=facts["threadgroup_memory_bytes"],
            matrices=tuple(_matrix_shape(text) for text in facts["cooperative_matrices"]),
            type=facts["type"],
            threads=facts["max_threads_per_threadgroup"],
            buffer=facts["max_buffer_bytes"],
            vulkan=facts["vulkan"],
            subgroup_sizes=(least, most) if least < most else (0, 0),
            lacking=ASSUMED - features,
            driver_version=tuple(map(int, filter(None, facts["driver_version"].split(".")))),
        )
    except OSError as error:
        raise BackendError(f"vulkan: profile: cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, StopIteration) as error:
        raise BackendError(
            f"vulkan: profile: {path} is no report with a Vulkan device; write one with `pumice doctor --report`"
        ) from error


def narrowed(device: DeviceDescription, profile: Profile) -> DeviceDescription:
    """Return the device with what it has of a profile, without its quirks.

    Its subgroup size stays, since no driver changes it, and so does its type, which decides how the host waits.
    """
    narrowed = without_quirks(profile.described(device.memory_bytes))
    return replace(
        device,
        name=f"{narrowed.name} (on {device.name})",
        vulkan_driver=narrowed.vulkan_driver,
        driver_id=narrowed.driver_id,
        driver_version=narrowed.driver_version,
        vendor=narrowed.vendor,
        api_version=min(device.api_version, narrowed.api_version, key=version),
        max_buffer_bytes=min(device.max_buffer_bytes, narrowed.max_buffer_bytes),
        max_threads_per_threadgroup=min(device.max_threads_per_threadgroup, narrowed.max_threads_per_threadgroup),
        threadgroup_memory_bytes=min(device.threadgroup_memory_bytes, narrowed.threadgroup_memory_bytes),
        push_constant_bytes=min(device.push_constant_bytes, narrowed.push_constant_bytes),
        features=device.features & (narrowed.features | (SIZES - narrowed.avoided)),
        avoided=narrowed.avoided,
        most_dispatches=narrowed.most_dispatches,
        most_work=narrowed.most_work,
        cooperative_matrices=tuple(
            shape for shape in narrowed.cooperative_matrices if shape in device.cooperative_matrices
        ),
        limited=True,
    )
