"""The backend contract: programs, steps, and picking tokens on a device."""

from pumice.backend.contract import (
    Backend,
    CacheForm,
    Capabilities,
    DeviceInfo,
    Fact,
    KernelTime,
    NoOptions,
    Program,
)

__all__ = [
    "Backend",
    "CacheForm",
    "Capabilities",
    "DeviceInfo",
    "Fact",
    "KernelTime",
    "NoOptions",
    "Program",
]
