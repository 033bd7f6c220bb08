"""Kernels that the backend chooses for AMD's GPUs, compiled by Mesa's driver, which needs no such GPU for that."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pumice.gguf import GGMLType
from pumice.plugin import BackendError
from pumice_vulkan.buckets import Bucket
from pumice_vulkan.device.driver_ids import DriverId
from pumice_vulkan.kernels import code_of

try:
    from tools.driver_compiler import Mesa, Pipeline
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


def test_a_pipeline_that_fails_is_reported(mesa: Mesa) -> None:
    """The next one compiles all the same."""
    good = Pipeline("rms_norm", (1024, 1, 0), 4, 64, full_subgroups=False, subgroup=64)
    missing = Pipeline("none", (), 4, 64, full_subgroups=False, subgroup=64)
    report = driver_kernels.reported("navi21", mesa, [missing, good])
    assert list(report.failed) == [missing]
    assert "shader 'none' is missing" in report.failed[missing]
    assert report.results[good].statistics["VGPRs"] > 0


def test_a_device_without_memory_is_left_out(mesa: Mesa) -> None:
    command, environment = mesa.command("radeon", {"RADV_FORCE_FAMILY": "navi21"}, "")
    code = "from pumice_vulkan.device import list_devices; print(list_devices())"
    done = subprocess.run(
        [*command, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_missing_driver_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"no Vulkan driver radeon \(Debian: mesa-vulkan-drivers\)"):
        Mesa(tmp_path).command("radeon", {}, "")
    icd = tmp_path / "usr/share/vulkan/icd.d/intel_icd.json"
    icd.parent.mkdir(parents=True)
    icd.touch()
    with pytest.raises(BackendError, match=r"no drm-shim intel in .*; build it with tools/drm_shims\.sh"):
        Mesa(tmp_path, tmp_path).command("intel", {}, "intel")
    (tmp_path / "intel_shim.so").touch()
    command, environment = Mesa(tmp_path, tmp_path).command("intel", {"A": "b"}, "intel")
    assert command == [sys.executable]
    assert environment["LD_PRELOAD"] == str(tmp_path / "intel_shim.so")
    assert environment["A"] == "b"
