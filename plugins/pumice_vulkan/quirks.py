"""Faults of drivers on devices: each row takes a wrong or slow feature or kernel away, or changes a choice.

A row applies to devices of a vendor with the driver and version that it names, and whose name matches; the backend
does without the feature, as if the device did not have it. docs/gpu_profiles.md says which workarounds of other
programs have no row, and why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pumice_vulkan.device import DeviceDescription
from pumice_vulkan.device.driver_ids import DriverId

MATRICES = "cooperative_matrix"
ATTENTION = "attention_cooperative"
UNROLLED = "unrolled_loops"
SIGMOID_ROUTE = "route_sigmoid"
NOTHING: frozenset[str] = frozenset()
FEW = 16  # dispatches in a submit that a watchdog does not end, as reported
MOST_WORK = 2**34  # multiplications in such a submit: 0.2 s at 0.17 TFLOP/s, beside 2 s that Windows allows


@dataclass(frozen=True)
class Quirk:
    """A row of the table of quirks.

    Attributes:
        vendor: as in ``DeviceDescription``; empty: any.
        without: the features and kernels that are not used.
        why: what was observed, and where it was reported.
        device: regular expression that the device's name contains.
        drivers: the drivers that have it; empty: any.
        since: the first version of these drivers that has it; empty: all before ``before``.
        before: the first version without it; empty: it stands. An unknown version is taken to be the newest.
        type: the row is for devices of this type, such as "cpu" without a GPU; empty: any.
        size: the row is for devices with subgroups of this size; 0: any.
        subgroup: the size of subgroups to ask for, if the device offers it.
        dispatches: the most dispatches in a submit, which then does at most ``MOST_WORK``, too.
    """

    vendor: str
    without: frozenset[str]
    why: str
    device: str = ""
    drivers: tuple[DriverId, ...] = ()
    since: tuple[int, ...] = ()
    before: tuple[int, ...] = ()
    type: str = ""
    size: int = 0
    subgroup: int = 0
    dispatches: int = 0

    def applies(self, device: DeviceDescription) -> bool:
        return (
            self.vendor in ("", device.vendor)
            and bool(re.search(self.device, device.name))
            and (not self.drivers or device.driver_id in self.drivers)
            and self._has_version(device.driver_version)
            and self.type in ("", device.type)
            and self.size in (0, device.subgroup_size)
        )

    def _has_version(self, version: tuple[int, ...]) -> bool:
        is_new = not version or version >= self.since
        return is_new and (not self.before or (bool(version) and version < self.before))


_AMDS_OWN = (DriverId.AMD_PROPRIETARY, DriverId.AMD_OPEN_SOURCE)
_RDNA12 = (
    r"RX (5[3567]|6[3-9])\d{2}\b|P(?i:ro) W[56]\d{3}|NAVI[12]\d|Pro 5[356]00M|680M|660M|GFX103\d"
    r"|VANGOGH|REMBRANDT|RAPHAEL"
)
_GCN = (
    r"RX [45]\d{2}\b|WX [2-9]\d{3}|R[579] |Vega|VII|POLARIS|FIJI|HAWAII|TONGA|VEGA|RAVEN|RENOIR|GFX90|GFX[678]\d\d\b"
    r"|TAHITI|PITCAIRN|VERDE|OLAND|HAINAN|BONAIRE|KAVERI|KABINI|ICELAND|CARRIZO|STONEY"
)
_BEFORE_XE2 = r"^(?!.*(BMG|LNL|PTL|\bB\d{2,3}\b|1[34]0V)).*$"

QUIRKS = (
    Quirk(
        "AMD",
        frozenset({MATRICES}),
        "AMD's own driver lists matrix shapes for GPUs without matrix units (ggml-org/llama.cpp#10597)",
        device=r"^(?!.*(RX 7\d{3}|RX 9\d{3}|PRO W7|AI PRO R9|80[456]0S|(7[48]0|8[89]0)M)).*$",
        drivers=_AMDS_OWN,
    ),
    Quirk(
        "Intel",
        frozenset({MATRICES}),
        "products on the matrix units of the first Arc cards are slower than without (ggml-org/llama.cpp#24404)",
        device=r"\bA\d{3}M?\b",
        drivers=(DriverId.INTEL_WINDOWS,),
    ),
    Quirk(
        "Intel",
        frozenset({MATRICES}),
        "the driver computes products of matrix units without them (ggml-org/llama.cpp#10597, #10721)",
        drivers=(DriverId.INTEL_MESA,),
        before=(24, 3),
    ),
    Quirk(
        "Intel",
        frozenset({MATRICES}),
        "the driver lists 8x8x16 for GPUs since Gen9, most of which have no matrix units (Mesa, intel_device_info.c)",
        device=_BEFORE_XE2,
        drivers=(DriverId.INTEL_MESA,),
    ),
    Quirk(
        "Intel",
        frozenset({ATTENTION}),
        "subgroups that multiply different numbers of matrices disturb each other (ggml-org/llama.cpp#24406)",
        drivers=(DriverId.INTEL_MESA,),
        since=(26, 1),
    ),
    Quirk(
        "NVIDIA",
        frozenset({ATTENTION}),
        "Turing's compiler fails at attention on matrix units (ggml-org/llama.cpp#19290)",
        device=r"RTX 20\d\d|GTX 16\d\d|Quadro RTX|TITAN RTX|\bT4\b",
        drivers=(DriverId.NVIDIA,),
    ),
    Quirk(
        "",
        frozenset({MATRICES}),
        "a processor computes the products of matrix units slower than others (ggml-org/llama.cpp#19846)",
        type="cpu",
    ),
    Quirk(
        "AMD",
        frozenset({MATRICES}),
        "the driver crashes when asked for the matrix shapes of integrated GPUs (ggml-org/llama.cpp#22750)",
        drivers=_AMDS_OWN,
        type="integrated",
    ),
    Quirk(
        "AMD",
        NOTHING,
        "RDNA 1 and 2 compute with 32 lanes, and list 64 first (as in ggml-vulkan's choices by generation)",
        device=_RDNA12,
        drivers=(DriverId.RADV, *_AMDS_OWN),
        subgroup=32,
    ),
    Quirk(
        "AMD",
        frozenset({"subgroup_arithmetic", "subgroup_shuffle"}),
        "subgroups of 64 are two of Metal's, and sums over them wrong (KhronosGroup/MoltenVK#2750, #2756)",
        drivers=(DriverId.MOLTENVK,),
        size=64,
    ),
    Quirk(
        "AMD",
        NOTHING,
        "the system resets GPUs of GCN that are busy for seconds (ggml-org/llama.cpp#26813)",
        device=_GCN,
        dispatches=FEW,
    ),
    Quirk(
        "AMD",
        NOTHING,
        "the system resets integrated GPUs that are busy for seconds (ggml-org/llama.cpp#21724, #27076)",
        type="integrated",
        dispatches=FEW,
    ),
    Quirk(
        "Intel",
        NOTHING,
        "the system cancels work of integrated GPUs that takes seconds (ggml-org/llama.cpp#27634)",
        type="integrated",
        dispatches=FEW,
    ),
    Quirk(
        "Intel",
        NOTHING,
        "products with a vector are faster with 16 lanes than with the 32 that drivers list (as in ggml-vulkan)",
        subgroup=16,
    ),
    Quirk(
        "Intel",
        frozenset({"full_subgroups"}),
        "kernels that require full subgroups give wrong results on Windows (ggml-org/llama.cpp#17374)",
        drivers=(DriverId.INTEL_WINDOWS,),
    ),
    Quirk(
        "Intel",
        frozenset({"integer_dot_product_fast"}),
        "on Windows products with int8 are slower than with floats (ggml-org/llama.cpp#17628)",
        drivers=(DriverId.INTEL_WINDOWS,),
    ),
    Quirk(
        "Intel",
        frozenset({"timeline_semaphore"}),
        "work submitted ahead gives wrong results on GPUs before Xe2 (ggml-org/llama.cpp#17302)",
        device=_BEFORE_XE2,
    ),
    Quirk(
        "",
        frozenset({SIGMOID_ROUTE}),
        "a kernel that chooses experts by sigmoids gives infinities through Metal (as in ggml-vulkan)",
        drivers=(DriverId.MOLTENVK,),
    ),
    Quirk(
        "Mesa",
        frozenset({UNROLLED}),
        "Asahi's compiler does badly at loops that are unrolled (as in ggml-vulkan)",
        drivers=(DriverId.HONEYKRISP,),
    ),
    Quirk(
        "Mesa",
        frozenset({UNROLLED}),
        "LLVM compiles unrolled loops for more than a minute (measured with Mesa 25.0.7)",
        drivers=(DriverId.LLVMPIPE,),
    ),
)


def without_quirks(device: DeviceDescription) -> DeviceDescription:
    """Return the description without what its quirks take away, and with the choices that they make."""
    quirks = [quirk for quirk in QUIRKS if quirk.applies(device)]
    gone = frozenset[str]().union(*(quirk.without for quirk in quirks))
    dispatches = [quirk.dispatches for quirk in quirks if quirk.dispatches]
    least, most = device.subgroup_sizes
    sizes = [quirk.subgroup for quirk in quirks if least <= quirk.subgroup <= most and quirk.subgroup]
    return replace(
        device,
        features=device.features - gone,
        cooperative_matrices=() if MATRICES in gone else device.cooperative_matrices,
        avoided=gone,
        most_dispatches=min(dispatches, default=0),
        most_work=MOST_WORK if dispatches else 0,
        subgroup_size=sizes[0] if sizes else device.subgroup_size,
    )
