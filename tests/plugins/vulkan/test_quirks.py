"""Quirks: what each takes away, on paper, and what the native driver does with a device that has them."""

import itertools
import struct
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import pytest
from tools.paper_device import PaperDevice

import pumice
from device_commands import encode_scale, record, spirv, words
from pumice_vulkan import VulkanBackend, backend
from pumice_vulkan.device import Device, DeviceDescription, Launch, open_device
from pumice_vulkan.device.driver_ids import DriverId
from pumice_vulkan.device.spirv import instructions
from pumice_vulkan.kernels import Kernels
from pumice_vulkan.profiles import HALF, PROFILES, SQUARE
from pumice_vulkan.quirks import without_quirks
from pumice_vulkan.shaders import FOLDERS, shader

native = pytest.mark.parametrize("driver", ["native"], indirect=True)
M, A, S = "cooperative_matrix", "attention_cooperative", "route_sigmoid"
F, T, FAST = "full_subgroups", "timeline_semaphore", "integer_dot_product_fast"
NOT_AT_APPLE = {"subgroup_arithmetic", "subgroup_shuffle", S}


def claiming(name: str, version: tuple[int, ...] = ()) -> DeviceDescription:
    """A profile's device that claims matrix units of the shape that kernels use, and fast products of int8."""
    features = PROFILES[name].features | HALF | {FAST}
    return replace(PROFILES[name], matrices=SQUARE, features=features, driver_version=version).described()


@pytest.mark.parametrize(
    ("version", "taken"),
    [((24, 2, 8), {M}), ((24, 3, 0), set()), ((26, 0, 8), set()), ((26, 1, 0), {A}), ((26, 2, 3), {A}), ((), {A})],
)
def test_versions_of_a_driver_that_have_a_fault(version: tuple[int, ...], taken: set[str]) -> None:
    assert without_quirks(claiming("xe2-b50-mesa", version)).avoided == taken
    assert not without_quirks(replace(claiming("xe2-b50-mesa", version), driver_id=DriverId.NVK)).avoided


RADV, OWN, AMDVLK = DriverId.RADV, DriverId.AMD_PROPRIETARY, DriverId.AMD_OPEN_SOURCE
WINDOWS, MESA, NVIDIA = DriverId.INTEL_WINDOWS, DriverId.INTEL_MESA, DriverId.NVIDIA


@pytest.mark.parametrize(
    ("profile", "driver", "names", "taken", "subgroup", "dispatches"),
    [
        ("rdna3-rx7900xtx-radv", OWN, "AMD Radeon RX 7600, AMD Radeon AI PRO R9700, AMD Radeon 780M", set(), 64, 0),
        ("rdna2-rx6700xt-radv", RADV, "AMD Radeon RX 5500 XT, AMD Radeon PRO W6800, (RADV GFX1036)", set(), 32, 0),
        ("rdna35-8060s-amdvlk", OWN, "AMD Radeon 780M Graphics", {M}, 64, 16),
        ("rdna2-rx6700xt-radv", AMDVLK, "AMD Radeon RX 6600", {M}, 32, 0),
        ("rdna2-rx6700xt-radv", DriverId.MOLTENVK, "AMD Radeon RX 6600", NOT_AT_APPLE, 64, 0),
        ("gcn5-pro-vii-radv", RADV, "Radeon RX 580 Series, AMD Radeon VII, (RADV GFX803)", set(), 64, 16),
        ("turing-rtx2060super", NVIDIA, "NVIDIA GeForce GTX 1660, Quadro RTX 5000, NVIDIA T4", {A}, 32, 0),
        ("turing-rtx2060super", DriverId.NVK, "NVIDIA GeForce RTX 2060", set(), 32, 0),
        ("ampere-rtx3090", NVIDIA, "NVIDIA RTX A4000", set(), 32, 0),
        ("xe-a770-mesa", MESA, "Intel(R) Graphics (DG2)", {M, T, A}, 16, 0),
        ("xe-a770-mesa", WINDOWS, "Intel(R) Arc(TM) A380 Graphics", {M, T, F, FAST}, 16, 0),
        ("xe-a770-mesa", DriverId.UNKNOWN, "Intel(R) Arc(TM) A380 Graphics", {T}, 16, 0),
        ("xe2-b50-mesa", MESA, "Intel(R) Graphics (BMG G31)", {A}, 16, 0),
    ],
)
def test_names_that_drivers_give(
    profile: str, driver: DriverId, names: str, taken: set[str], subgroup: int, dispatches: int
) -> None:
    """Cards and chips of a generation, by the names that different drivers give."""
    for name in names.replace("(RADV", "AMD Radeon Graphics (RADV").split(", "):
        device = without_quirks(replace(claiming(profile), name=name, driver_id=driver))
        assert device.avoided == taken, name
        assert (device.subgroup_size, device.most_dispatches) == (subgroup, dispatches), name


def test_a_device_that_can_compute_no_model_is_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    mac = PROFILES["rdna1-pro5500m-moltenvk"].described()
    old = replace(PROFILES["pascal-gtx1070"].described(), features=frozenset())
    monkeypatch.setattr(backend, "list_devices", lambda: [mac])
    assert backend._unavailable.__wrapped__(False) == (
        "AMD Radeon Pro 5500M cannot be used: subgroups of 64 are two of Metal's, and sums over them wrong "
        "(KhronosGroup/MoltenVK#2750, #2756)"
    )
    assert (backend._unusable(old) or "").endswith("its driver does not offer subgroup_arithmetic")
    monkeypatch.setattr(backend, "list_devices", lambda: [mac, PROFILES["hopper-h200"].described()])
    assert backend._unavailable.__wrapped__(False) is None


@pytest.mark.usefixtures("vulkan_device")
def test_the_backend_refuses_such_a_device() -> None:
    vulkan = VulkanBackend(VulkanBackend.Options(profile="rdna1-pro5500m-moltenvk"))
    with pytest.raises(pumice.BackendError, match=r"cannot be used: subgroups of 64 .*; use another device or the"):
        vulkan.free_memory()


def test_loops_stay_rolled_where_unrolling_is_bad() -> None:
    def taken(profile: str, name: str) -> bytes:
        codes: list[bytes] = []
        kernel = SimpleNamespace(kernel=name, buffers=(), push=b"", constants=(), full_subgroups=False)
        with PaperDevice(without_quirks(PROFILES[profile].described())) as device:
            device.new_pipeline = lambda code, *_, **__: codes.append(code)  # type: ignore[assignment,method-assign]
            Kernels(device)._compile(kernel)  # type: ignore[arg-type]
        return codes[0]

    def controls(code: bytes) -> list[int]:
        return [loop[2] for opcode, loop in instructions(code) if opcode == 246]

    for profile in ("apple-m1-ultra-honeykrisp", "lavapipe-8"):
        rolled = controls(taken(profile, "softmax"))
        assert set(rolled) == {2}  # DontUnroll
        assert len(rolled) == len(controls(shader("softmax")))
        assert taken(profile, "persistent.experts_q4_k_m") == shader("persistent.experts_q4_k_m")
    assert taken("apple-m4-max-moltenvk", "softmax") == shader("softmax")


def test_no_kernel_computes_exp_in_float16() -> None:
    """On V100 and T4 it gives 65504 where it should be infinite (ggml-org/llama.cpp#16116)."""
    extended, exp = 12, (27, 29)  # OpExtInst; Exp and Exp2 of GLSL.std.450
    found = []
    for path in sorted(next(folder for folder in FOLDERS if folder.exists()).glob("*.spv")):
        code = path.read_bytes()
        half = {w[0] for opcode, w in instructions(code) if opcode == 22 and w[1] == 16}
        half |= {w[0] for opcode, w in instructions(code) if opcode == 23 and w[1] in half}
        found += [path.name for opcode, w in instructions(code) if opcode == extended and w[3] in exp and w[0] in half]
    assert found == []


@pytest.fixture
def limited(driver: str) -> Iterator[Device]:
    """A device on which a watchdog ends submits of more than two dispatches."""
    with open_device(driver) as device:
        device.limit(replace(device.description, most_dispatches=2))
        yield device


@native
def test_submits_are_as_short_as_the_watchdog_wants(limited: Device) -> None:
    from pumice_vulkan.device.native import commands as module

    pipeline = limited.new_pipeline(spirv("scale"), 2, 8, (32, 3))
    buffers = [limited.new_buffer(256, host=True) for _ in range(6)]
    commands, encoder = record(limited)
    for source, target in itertools.pairwise(buffers):  # each needs what the one before has written
        encode_scale(encoder, pipeline, source, target, 64, 0)
        encoder.barrier()
    encoder.end()
    lib = mock.Mock(wraps=module.lib)
    with mock.patch.object(module, "lib", lib):
        for start in (1, 2):
            words(buffers[0])[:] = start
            commands.hold()  # is not for commands of several submits
            commands.commit_and_wait()
            assert [int(words(buffer)[-1]) for buffer in buffers] == [start * 3**i for i in range(6)]
    assert lib.vkQueueSubmit.call_count == 2 * 3
    commands.close()


@native
def test_submits_have_as_little_work_as_the_watchdog_wants(driver: str) -> None:
    from pumice_vulkan.device.native import commands as module

    with open_device(driver) as device:
        device.limit(replace(device.description, most_dispatches=3, most_work=10))
        pipeline = device.new_pipeline(spirv("scale"), 2, 8, (32, 3))
        buffers = [device.new_buffer(256, host=True) for _ in range(9)]
        commands, encoder = record(device)
        push = struct.pack("<2I", 64, 0)
        for pair, work in zip(itertools.pairwise(buffers), (20, 4, 6, 1, 0, 0, 0, 20), strict=True):
            encoder.launch(Launch(pipeline, pair, push, (2, 1, 1), work))
            encoder.barrier()
        encoder.end()
        lib = mock.Mock(wraps=module.lib)
        words(buffers[0])[:] = 1
        with mock.patch.object(module, "lib", lib):
            commands.commit_and_wait()
        assert [int(words(buffer)[-1]) for buffer in buffers] == [3**i for i in range(9)]
        assert lib.vkQueueSubmit.call_count == 5  # 20; 4, 6; 1, 0, 0; 0; 20
        commands.close()


@native
def test_a_submit_of_several_that_fails_is_one_error(limited: Device) -> None:
    from pumice_vulkan.device.native import commands as module

    pipeline = limited.new_pipeline(spirv("scale"), 2, 8, (32, 1))
    here, there = limited.new_buffer(256), limited.new_buffer(256)
    commands, encoder = record(limited)
    for _ in range(5):
        encode_scale(encoder, pipeline, here, there, 64, 0)
    encoder.end()
    lib = mock.Mock(wraps=module.lib)
    results = iter([0, -2, 0])
    original = module.lib
    lib.vkQueueSubmit.side_effect = lambda *arguments: next(results) or original.vkQueueSubmit(*arguments)
    with mock.patch.object(module, "lib", lib), pytest.raises(pumice.BackendError, match="out of memory"):
        commands.commit()
    assert lib.vkQueueSubmit.call_count == 2
    assert lib.vkDeviceWaitIdle.call_count == 1
    commands.commit_and_wait()


@native
def test_a_driver_that_crashes_is_not_asked_for_its_matrix_shapes(driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from pumice_vulkan.device.native import instance as module

    device = module.Instance().devices[0]
    device.features.names.add("cooperative_matrix")
    asked = mock.Mock(return_value=SQUARE)
    monkeypatch.setattr(module, "matrix_shapes", asked)
    device.properties.vendorID, device.type = 0x1002, "discrete"
    device.properties.deviceName, device.driver.driverID = b"Radeon RX 9070 XT", OWN
    assert device.describe(0).cooperative_matrices == SQUARE
    device.properties.deviceName, device.type = b"AMD Radeon 860M", "integrated"
    assert device.describe(0).cooperative_matrices == ()
    assert asked.call_count == 1


@native
def test_the_right_device_is_the_first(driver: str) -> None:
    from pumice_vulkan.device.native.instance import in_order

    def device(type: str, uuid: bytes, driver: DriverId) -> SimpleNamespace:
        return SimpleNamespace(type=type, ids=SimpleNamespace(deviceUUID=uuid), driver=SimpleNamespace(driverID=driver))

    expected = [device("discrete", b"d", driver) for driver in (RADV, AMDVLK, DriverId.DOZEN)]
    expected += [device("discrete", b"e", NVIDIA), device("integrated", b"i", MESA)]
    expected.append(device("cpu", b"c", DriverId.LLVMPIPE))
    listed = [expected[i] for i in (5, 4, 2, 1, 3, 0)]
    assert in_order(listed) == expected  # type: ignore[comparison-overlap]
