"""Profiles of devices, the kernels chosen for each, and quirks: on paper, but for one model."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tools.paper_device import PaperDevice

import pumice
from attention_steps import attend
from pumice.config import load_config
from pumice.device_checks import all_cases, check_cases
from pumice.gguf import GGMLType
from pumice.registry import get_registry
from pumice.testing import check_operation
from pumice_numpy import NumpyBackend
from pumice_vulkan import VulkanBackend
from pumice_vulkan.backend import _use_int8
from pumice_vulkan.device.driver_ids import DriverId
from pumice_vulkan.device.resources import Resources, resources
from pumice_vulkan.formats import FORMATS
from pumice_vulkan.probe import matrix_shape
from pumice_vulkan.profiles import DOT, HALF, PROFILES, find_profile, narrowed
from pumice_vulkan.quirks import without_quirks
from pumice_vulkan.shaders import interface, shader
from pumice_vulkan.tuning import vector_shape
from tools import gpu_profiles, shader_checks


def test_the_table_is_that_of_the_tool(tmp_path: Path) -> None:
    """Each kernel that a profile would choose has the features that it needs, and fits its limits."""
    page = gpu_profiles.TARGET.read_text()
    with gpu_profiles.captured(gpu_profiles.write_model(tmp_path / "model.gguf")) as compiled:
        lowered = gpu_profiles.lowered_profiles(compiled)
    assert page == gpu_profiles.text(page, lowered), "run: python tools/gpu_profiles.py"
    assert len(PROFILES) >= 30


def test_the_checks_of_the_table_find_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    validator, translator = (shader_checks.program(name) for name in ("spirv-val", "spirv-cross"))
    if validator is None or translator is None:
        pytest.skip("spirv-val and spirv-cross are not installed (Debian: spirv-tools, spirv-cross)")
    kernel = gpu_profiles.Kernel("matmul", ["apple-m4-max-moltenvk", "hopper-h200"])
    assert (kernel.vulkan, kernel.is_translated, kernel.needs_units) == ("1.2", True, False)
    assert gpu_profiles.Kernel("matmul_lanes", ["hopper-h200"]).needs_units
    monkeypatch.setattr(shader_checks, "SHADERS", tmp_path)
    (tmp_path / "matmul.f32.spv").write_bytes(shader("matmul.f32"))
    assert gpu_profiles.problems([kernel], validator, translator) == []
    (tmp_path / "matmul.q4_0.spv").write_bytes(shader("matmul.q4_0")[:-40])
    wrong = gpu_profiles.problems([kernel], validator, translator)
    assert [line.partition(":")[0] for line in wrong] == ["matmul.q4_0 for Vulkan 1.2", "matmul.q4_0 to Metal"]
    (tmp_path / "matmul.q4_0.spv").rename(tmp_path / "route.spv")
    wrong = gpu_profiles.problems([kernel], validator, translator)
    assert [line.partition(":")[0] for line in wrong] == ["route for Vulkan 1.2", "route to Metal"]


@pytest.mark.parametrize(
    ("kernel", "constants", "expected"),
    [
        ("half", (), Resources(128, 0)),
        ("attention_tile.f32", (4, 16, 16, 0, 32, 0, 0, 0, 0, 0, 32), Resources(256, 16 * 1024 + 4 * 64 * 33)),
        ("attention_tile.f32", (2, 16, 16, 0, 32, 0, 0, 0, 0, 0, 16), Resources(256, 16 * 64 * 9 + 4 * 32 * 33)),
        ("matmul_cooperative.f16", (128, 1, 0, 64, 64, 2, 2, 64, 16), Resources(128, 16 * 128 * 9 + 4)),
    ],
)
def test_resources(kernel: str, constants: tuple[int, ...], expected: Resources) -> None:
    assert resources(shader(kernel), constants) == expected


@pytest.mark.parametrize(
    ("kernel", "constants", "problem"),
    [
        ("matvec_int8.q4_0", (), "the shader needs integer_dot_product"),
        ("attention_tile.f32", (4, 16, 16), "24832 bytes of shared memory are too many for V3D .*: at most 16384"),
        ("rms_norm", (512,), "512 invocations are too many for V3D .*: at most 256"),
    ],
)
def test_features_that_a_profile_lacks_are_refused(kernel: str, constants: tuple[int, ...], problem: str) -> None:
    most = PROFILES["hopper-h200"].described()
    with (
        PaperDevice(narrowed(most, PROFILES["v3d-71-mesa"])) as device,
        pytest.raises(pumice.BackendError, match=problem),
    ):
        device.new_pipeline(shader(kernel), 1, interface(kernel).n_bytes, constants)


def test_a_device_narrows_a_profile() -> None:
    device = PROFILES["lavapipe-8"].described()
    found = narrowed(device, PROFILES["rdna3-rx7900xtx-radv"])
    assert not found.cooperative_matrices
    assert found.features == device.features
    assert (found.subgroup_size, found.threadgroup_memory_bytes) == (8, 32768)
    assert found.vendor == "AMD"


def test_int8_activations_need_subgroups_of_eight() -> None:
    """Eight adjacent invocations quantize a block; results of smaller subgroups were wrong."""
    small = replace(PROFILES["lavapipe-4"], features=HALF | DOT).described()
    with PaperDevice(small) as device, PaperDevice(replace(small, subgroup_size=8)) as wide:
        assert not _use_int8("auto", device)
        assert _use_int8("auto", wide)
        with pytest.raises(pumice.BackendError, match="subgroups of 8 invocations, llvmpipe has 4; set activations"):
            _use_int8("int8", device)


def test_unknown_profile() -> None:
    with pytest.raises(pumice.BackendError, match="unknown profile 'pong'; choose one of gcn4-rx550-windows, "):
        find_profile("pong")


@pytest.mark.usefixtures("vulkan_device")
def test_the_kernels_of_a_closed_backend_are_named() -> None:
    vulkan = VulkanBackend()
    x = np.ones((3, 8), np.float32)
    check_operation(vulkan, lambda g, a: g.softmax(a["x"]), {"x": x})
    (name,) = vulkan.kernels()
    assert re.fullmatch(r"softmax( \d+)+", name)


def test_a_wrong_size_of_memory_is_refused_with_the_configuration() -> None:
    """Also where no Vulkan device is used."""
    with pytest.raises(pumice.ConfigError) as error:
        get_registry(load_config({"vulkan": {"memory": "much"}}))
    expected = "should be a size of memory, such as 12GiB or 512MiB, not 'much'"
    assert str(error.value) == f"arguments: vulkan: memory: {expected}"
    for size in ("", "12GiB"):
        assert get_registry(load_config({"vulkan": {"memory": size}}))


def test_a_wrong_profile_is_refused_with_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no Vulkan device is used."""
    monkeypatch.chdir(tmp_path)
    Path("report.json").write_text("{}")  # is read where a device is opened
    file = "an existing file of `pumice doctor --report`"
    wrong = {
        "pong": f"profile: should be a profile of docs/gpu_profiles.md or {file}, not 'pong'",
        "other.json": f"profile: should be {file}, not 'other.json'",
    }
    for name, message in wrong.items():
        Path("pumice.yaml").write_text(f"vulkan:\n  profile: {name}\n")
        with pytest.raises(pumice.ConfigError) as error:
            get_registry(load_config({}))
        assert str(error.value) == f"pumice.yaml: vulkan: {message}"
    for name in ("v3d-71-mesa", "report.json", "''"):
        Path("pumice.yaml").write_text(f"vulkan:\n  profile: {name}\n")
        get_registry(load_config({}))


@pytest.mark.usefixtures("vulkan_device")
def test_attention_with_a_profile(tmp_path: Path) -> None:
    """The least of the profiles: 16 KiB of shared memory, in which a tile has half the values at a time."""
    options = {"heads": (4, 2), "dims": (64, 128), "scale": 0.2}
    vulkan = VulkanBackend(VulkanBackend.Options(profile="v3d-71-mesa"))
    with closing(vulkan):
        (found,), (expected,) = (attend(tmp_path, each, [(40,)], **options) for each in (vulkan, NumpyBackend()))
        assert vulkan._open()[0].device.name.startswith("V3D")
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    for activations, problem in (("int8", "has no integer dot product"), ("half", "does not compute in float16")):
        vulkan = VulkanBackend(VulkanBackend.Options(profile="v3d-71-mesa", activations=activations))
        with pytest.raises(pumice.BackendError, match=rf"V3D .* {problem}"):
            vulkan.free_memory()


@pytest.mark.usefixtures("vulkan_device")
def test_the_checks_of_a_device_without_matrix_units_divide_columns():
    """So that a report shows whether workgroups of that GPU add up each other's sums."""
    cases = (case for case in all_cases() if case.name == "linear Q4_0 with 4096 rows, 40 tokens")
    (found,) = check_cases(lambda: VulkanBackend(VulkanBackend.Options(prepare="never")), cases)
    (kernel,) = (name for name in found.kernels if name.startswith("matmul"))
    assert int(kernel.split()[7]) > 1  # parts
    assert not found.problem


def test_pipelines_are_checked_with_their_constants() -> None:
    validator, optimizer = (shader_checks.program(name) for name in ("spirv-val", "spirv-opt"))
    if validator is None or optimizer is None:
        pytest.skip("spirv-val and spirv-opt are not installed (Debian: spirv-tools)")
    of_intel = (64, 12, 0, 64, 64, 2, 2, 64, 16, 1, 0, 8, 16, 16)
    no_rows = (64, 12, 0, 0, 64, 2, 2, 64, 16, 1, 0, 8, 16, 16)
    pipelines = {("matmul_cooperative.f16", constants): "1.3" for constants in (of_intel, no_rows)}
    (wrong,) = shader_checks.invalid_pipelines(optimizer, validator, pipelines)
    assert wrong.startswith(f"matmul_cooperative.f16 {no_rows} for Vulkan 1.3: ")
    assert "Length" in wrong


def test_several_vectors_of_floats_take_two_rows_at_a_time() -> None:
    """Four need all registers of AMD's GPUs (docs/gpu_profiles.md)."""
    with PaperDevice(PROFILES["gcn5-pro-vii-radv"].described()) as device:
        rows = [vector_shape(device, 4096, 448, n, FORMATS[GGMLType.Q4_0], int8=False).rows for n in (1, 2, 4)]
        assert vector_shape(device, 4096, 448, 4, FORMATS[GGMLType.Q4_0]).rows == 4
    assert rows == [4, 2, 2]


def test_matrix_units_of_each_shape_are_used() -> None:
    shapes = {
        name: matrix_shape(PROFILES[name].described()) for name in ("xe2-b50-mesa", "hopper-h200", "xe2-lnl-mesa")
    }
    assert [shape and (shape.m, shape.n, shape.k) for shape in shapes.values()] == [(8, 16, 16), (16, 16, 16), None]


@pytest.mark.usefixtures("vulkan_device")
def test_a_report_is_a_profile(tmp_path: Path) -> None:
    vulkan = VulkanBackend(VulkanBackend.Options(profile="rdna3-rx7900xtx-radv"))
    facts = {**vulkan.facts(), "cooperative_matrices": ["8x16x16 float16 to float32"]}
    vulkan.close()
    path = tmp_path / "report.json"
    device = {"label": "vulkan0", "name": "a GPU", "facts": facts}
    path.write_text(json.dumps({"devices": [{"label": "cpu0"}, device]}, default=list))
    profile = find_profile(str(path))
    assert (profile.device, profile.vendor, profile.driver_id) == ("a GPU", "AMD", DriverId.RADV)
    found = profile.described()
    assert found.features == set(facts["features"]) | {"cooperative_matrix"}
    assert found.threadgroup_memory_bytes == facts["threadgroup_memory_bytes"]
    assert [(shape.m, shape.n, shape.k) for shape in found.cooperative_matrices] == [(8, 16, 16)]
    with pytest.raises(pumice.BackendError, match=r"profile: cannot read .*none\.json: no such file"):
        find_profile(str(tmp_path / "none.json"))
    for text in (
        "{",
        "[]",
        '{"devices": [3]}',
        '{"devices": [{"label": "cpu0"}]}',
        '{"devices": [{"label": "vulkan0"}]}',
    ):
        path.write_text(text)
        with pytest.raises(pumice.BackendError) as error:
            find_profile(str(path))
        message = f"vulkan: profile: {path} is no report with a Vulkan device; write one with `pumice doctor --report`"
        assert str(error.value) == message


@pytest.mark.parametrize("size", [8, 16, 32])
def test_intels_matrix_shape_with_each_of_its_subgroup_sizes(tmp_path: Path, size: int) -> None:
    """Each pipeline fits the device; with spirv-val and spirv-opt its products are also checked."""
    described = without_quirks(replace(PROFILES["xe2-b50-mesa"], subgroup_sizes=(8, 32)).described())
    with gpu_profiles.captured(gpu_profiles.write_model(tmp_path / "model.gguf")) as compiled:
        buckets = gpu_profiles.dispatches(replace(described, subgroup_size=size), compiled)
    found = {
        (d.kernel, tuple(d.constants)): "1.3" for dispatches in buckets.values() for d in dispatches if d.constants
    }
    on_units = {key for key in found if key[0].startswith(("matmul_few", "matmul_cooperative"))}
    assert {constants[-3:] for _, constants in on_units} == {(8, 16, 16)}
    assert {constants[0] // size for _, constants in on_units} <= {1, 2, 4, 8, 16, 32, 64}  # subgroups of a workgroup
    for kernel, constants in found:
        if size <= 16 and kernel.startswith("matmul_cooperative"):
            m, n, warps_m, warps_n = constants[3:7]
            assert m * n <= 32 * size * warps_m * warps_n, "sums of a lane, which has 128 registers"
    validator, optimizer = (shader_checks.program(name) for name in ("spirv-val", "spirv-opt"))
    if validator is not None and optimizer is not None:
        assert shader_checks.invalid_pipelines(optimizer, validator, found) == []
