"""Profiles of devices, the kernels chosen for each, and quirks: on paper, but for one model."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tools.paper_device import PaperDevice

import pumice
from pumice.config import load_config
from pumice.gguf import GGMLType
from pumice.registry import get_registry
from pumice_vulkan import VulkanBackend
from pumice_vulkan.buckets import Bucket
from pumice_vulkan.device.driver_ids import DriverId
from pumice_vulkan.device.resources import Resources, resources
from pumice_vulkan.lower.rule import Lowering
from pumice_vulkan.memory import BufferSlice
from pumice_vulkan.probe import matrix_shape
from pumice_vulkan.profiles import PROFILES, find_profile, narrowed
from pumice_vulkan.quirks import without_quirks
from pumice_vulkan.shaders import interface, shader
from tools import gpu_profiles, shader_checks


def test_the_table_is_that_of_the_tool(tmp_path: Path) -> None:
    """Each kernel that a profile would choose has the features that it needs, and fits its limits."""
    page = gpu_profiles.TARGET.read_text()
    with gpu_profiles.captured(gpu_profiles.write_model(tmp_path / "model.gguf")) as compiled:
        lowered = gpu_profiles.lowered_profiles(compiled)
    assert page == gpu_profiles.text(page, lowered), "run: python tools/gpu_profiles.py"
    assert len(PROFILES) >= 30


@pytest.mark.parametrize("type", ["F16", "Q4_0"])
def test_nothing_is_read_before_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, type: str) -> None:
    """Float16 activations have the order in which products read them: norms store no others."""
    made, unwritten = list[BufferSlice](), list[str]()
    dispatch = Lowering.dispatch

    def noted(self: Lowering, kernel: str, *, reads: Any, writes: Any, **options: Any) -> None:
        places = [place for item in reads.values() for place in (item if isinstance(item, list) else [item])]
        own = [place for place in places if place.buffer is self.memory.activations.buffer]
        unwritten.extend(kernel for place in own if not any(place.overlaps(other) for other in made))
        made.extend(place for item in writes.values() for place in (item if isinstance(item, list) else [item]))
        dispatch(self, kernel, reads=reads, writes=writes, **options)

    monkeypatch.setattr(Lowering, "dispatch", noted)
    path = gpu_profiles.write_model(tmp_path / "model.gguf", GGMLType[type])
    description = PROFILES["hopper-h200"].described()
    with gpu_profiles.captured(path) as compiled, gpu_profiles.program_on(description, compiled) as (_, program):
        for bucket in (Bucket(1, 1, True), Bucket(4, 1), Bucket(16, 1), Bucket(16, 16, True), Bucket(128, 1)):
            made.clear()
            program.lowered.dispatches(bucket)
            assert unwritten == [], bucket


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
    described = narrowed(PROFILES["hopper-h200"].described(), PROFILES["v3d-71-mesa"])
    with PaperDevice(described) as device, pytest.raises(pumice.BackendError, match=problem):
        device.new_pipeline(shader(kernel), 1, interface(kernel).n_bytes, constants)


def test_a_wrong_size_of_memory_is_refused_with_the_configuration() -> None:
    """Also where no Vulkan device is used."""
    expected = "^arguments: vulkan: memory: should be a size of memory, such as 12GiB or 512MiB, not 'much'$"
    with pytest.raises(pumice.ConfigError, match=expected):
        get_registry(load_config({"vulkan": {"memory": "much"}}))
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


def test_matrix_units_of_each_shape_are_used() -> None:
    for name, expected in {"xe2-b50-mesa": (8, 16, 16), "hopper-h200": (16, 16, 16), "xe2-lnl-mesa": None}.items():
        shape = matrix_shape(PROFILES[name].described())
        assert (shape and (shape.m, shape.n, shape.k)) == expected


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
    devices = ("3", '{"label": "cpu0"}', '{"label": "vulkan0"}')
    for text in ("{", "[]", *(f'{{"devices": [{device}]}}' for device in devices)):
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
    dispatches = [each for bucket in buckets.values() for each in bucket if each.constants]
    found = {(each.kernel, tuple(each.constants)): "1.3" for each in dispatches}
    on_units = {key for key in found if key[0].startswith(("matmul_few", "matmul_cooperative"))}
    assert {constants[-3:] for _, constants in on_units} == {(8, 16, 16)}
    assert {constants[0] // size for _, constants in on_units} <= {1, 2, 4, 8, 16, 32, 64}  # subgroups of a workgroup
    for kernel, constants in found:
        if size <= 16 and kernel.startswith("matmul_cooperative"):
            m, n, warps_m, warps_n = constants[3:7]
            assert m * n <= 32 * size * warps_m * warps_n, "sums of a lane, which has 128 registers"
    validator, optimizer = (shader_checks.program(name) for name in ("spirv-val", "spirv-opt"))
    if validator is not None and optimizer is not None:
        problems = shader_checks.invalid_pipelines(optimizer, validator, found)
        if any("Invalid capability operand: 6022" in problem for problem in problems):
            pytest.skip(f"{validator} does not know cooperative matrices; install SPIRV-Tools of 2024 or later")
        assert problems == []
