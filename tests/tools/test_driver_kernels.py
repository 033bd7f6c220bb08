"""Kernels that the backend chooses for AMD's GPUs, compiled by Mesa's driver, which needs no such GPU for that."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from pumice.gguf import GGMLType
from pumice.plugin import BackendError
from pumice_vulkan.buckets import Bucket
from pumice_vulkan.device.driver_ids import DriverId
from pumice_vulkan.kernels import code_of

try:
    from tools.driver_compiler import Mesa
    from tools.gpu_profiles import Compiled

    from tools import driver_kernels
except BackendError as no_loader:
    pytest.skip(str(no_loader), allow_module_level=True)

GPUS = {"polaris10": 64, "navi21": 32, "gfx1100": 64}
"""Of GCN 4, RDNA 2 and RDNA 3, with the sizes of subgroups that the backend asks for."""
SPILLING = {"gfx1100": {"matmul_half.q4_0"}}
"""Kernels with spilled registers by Mesa 22, which newer ones replace by matrix units there."""
BUCKETS = (Bucket(1, 1, lone=True), Bucket(4, 4, lone=True), Bucket(128, 1))


@pytest.fixture(scope="module")
def mesa() -> Mesa:
    system = Mesa()
    try:
        system.command("radeon", {}, "")
        with driver_kernels.TARGETS["navi21"].open(system):
            return system
    except BackendError as error:
        pytest.skip(f"RADV cannot be opened without an AMD GPU: {error}")


@pytest.fixture(scope="module")
def compiled() -> Iterator[list[Compiled]]:
    model = driver_kernels.Model(driver_kernels.dense(2048, 8192, 32, 4096), GGMLType.Q4_0)
    with ExitStack() as stack:
        yield list(driver_kernels.capture([model], stack))


@pytest.mark.parametrize(("name", "subgroup"), GPUS.items(), ids=list(GPUS))
def test_kernels_compile_without_spilled_registers(
    mesa: Mesa, compiled: list[Compiled], monkeypatch: pytest.MonkeyPatch, name: str, subgroup: int
) -> None:
    monkeypatch.setattr("pumice_vulkan.kernels.code_of", code_of)  # lavapipe's tests keep loops
    with driver_kernels.TARGETS[name].open(mesa) as compiler:
        description = compiler.description
    pipelines = driver_kernels.lowered([description], compiled, BUCKETS)[description]
    assert {pipeline.subgroup for pipeline in pipelines} == {subgroup}
    report = driver_kernels.reported(name, mesa, pipelines)
    assert report.failed == {}
    assert {pipeline.kernel for pipeline in report.spilled} <= SPILLING.get(name, set())
    assert len(report.results) == len(pipelines) > 20
    assert description.driver_id == DriverId.RADV
    assert min(report.waves.values()) >= 1
    assert report.row.startswith(f"| `{name}` | ")
