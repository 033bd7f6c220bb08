"""Drivers that offer what is wrong or slow on a device: each row takes a feature or a kernel away.

A row applies to devices of a vendor whose name and driver match; the backend does without the feature, as if the device
did not have it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pumice_vulkan.device import DeviceDescription

MATRICES = "cooperative_matrix"
ATTENTION = "attention_cooperative"


@dataclass(frozen=True)
class Quirk:
    """One row.

    Attributes:
        vendor: as in ``DeviceDescription``; empty: any.
        device: regular expression that the device's name contains.
        driver: regular expression that the driver's name and version contain.
        software: the row is for devices without a GPU.
        without: the features and kernels that are not used.
        why: what was observed, and where it was reported.
    """

    vendor: str
    without: frozenset[str]
    why: str
    device: str = ""
    driver: str = ""
    software: bool = False

    def applies(self, device: DeviceDescription) -> bool:
        return (
            self.vendor in ("", device.vendor)
            and bool(re.search(self.device, device.name))
            and bool(re.search(self.driver, device.vulkan_driver))
            and (device.software or not self.software)
        )


QUIRKS = (
    Quirk(
        "AMD",
        frozenset({MATRICES}),
        "AMD's own driver lists matrix shapes for GPUs without matrix units (ggml-org/llama.cpp#10597)",
        device=r"^(?!.*(RX 7\d{3}|RX 9\d{3}|PRO W7|AI PRO R9|80[456]0S|(7[48]0|8[89]0)M)).*$",
        driver=r"AMD (proprietary|open-source) driver|LLPC",
    ),
    Quirk(
        "Intel",
        frozenset({MATRICES}),
        "products on the matrix units of the first Arc cards are slower than without (ggml-org/llama.cpp#24404)",
        device=r"\bA\d{3}M?\b|\(DG2\)",
    ),
    Quirk(
        "NVIDIA",
        frozenset({ATTENTION}),
        "Turing's compiler fails at attention on matrix units (ggml-org/llama.cpp#19290)",
        device=r"RTX 20\d\d|GTX 16\d\d|Quadro RTX|TITAN RTX|Tesla T4|\bT4\b",
    ),
    Quirk(
        "",
        frozenset({MATRICES}),
        "a processor computes the products of matrix units slower than others (ggml-org/llama.cpp#19846)",
        software=True,
    ),
)


def without_quirks(device: DeviceDescription) -> DeviceDescription:
    """Return the description without what its quirks take away."""
    gone = frozenset[str]().union(*(quirk.without for quirk in QUIRKS if quirk.applies(device)))
    if not gone:
        return device
    shapes = () if MATRICES in gone else device.cooperative_matrices
    return replace(device, features=device.features - gone, cooperative_matrices=shapes, avoided=gone)
