"""Copies on the device from outputs of earlier steps to the inputs of a step behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol, cast

from pumice.plugin.unstable import Passed
from pumice_vulkan.device import Buffer
from pumice_vulkan.host_memory import HostMemory


class Copy(NamedTuple):
    """A copy of ``n_bytes`` between buffers, from and to an offset in bytes."""

    source: Buffer
    begin: int
    target: Buffer
    to: int
    n_bytes: int


class Source(Protocol):
    """A program of this backend."""

    host: HostMemory


def copies_of(passed: Mapping[str, Passed], host: HostMemory, n_rows: int) -> Iterator[Copy]:
    """Yield the copies before a step whose inputs are outputs of earlier steps.

    Args:
        passed: these inputs by name.
        host: memory of the program of the step.
        n_rows: rows of the bucket of the step. All that the output can have are copied, so that batches of a bucket
            have the same copies.
    """
    for name, item in passed.items():
        buffer, begin, most = cast(Source, item.program).host.output_place(item.output)
        yield Copy(buffer, begin, *host.input_place(name), min(n_rows * host.row_bytes(name), most))
