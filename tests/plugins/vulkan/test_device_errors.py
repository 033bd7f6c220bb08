"""Operations that a device cannot compute are an error, with both drivers."""

import dataclasses
import re
import subprocess
import sys
from unittest import mock

import pytest

from device_commands import encode_scale, record, spirv
from pumice.plugin import BackendError
from pumice_vulkan.device import list_devices, open_device


def test_a_buffer_of_a_wrong_size_is_an_error(device):
    size = device.description.max_buffer_bytes + 4
    with pytest.raises(BackendError, match=rf"a buffer of {size} bytes is too large for .*: at most \d+"):
        device.new_buffer(size)
    for size in (0, -4, 6):
        with pytest.raises(ValueError, match="multiple of 4"):
            device.new_buffer(size)
    assert device.n_allocations == 0


def test_memory_runs_out_with_an_error(device):
    size = 4096
    device.description = dataclasses.replace(device.description, memory_bytes=10 * size)
    for _ in range(10):
        device.new_buffer(size)
    with pytest.raises(BackendError, match=rf"{size} bytes more than {10 * size} on .*: out of memory; lower"):
        device.new_buffer(size)
    assert (device.n_allocations, device.allocated_bytes) == (10, 10 * size)


def test_memory_of_a_gpu_runs_out_with_an_error(device):
    if device.description.type != "discrete":
        pytest.skip("only for a discrete GPU: elsewhere the memory is that of everybody")

    def fill():
        while True:
            device.new_buffer(device.description.max_buffer_bytes)

    with pytest.raises(BackendError, match="out of memory"):
        fill()
    assert device.allocated_bytes > 0.5 * device.description.memory_bytes


@pytest.mark.parametrize("function", ["vkQueueSubmit", "vkWaitForFences"])
def test_a_lost_device_is_an_error(device, monkeypatch, function):
    pipeline = device.new_pipeline(spirv("scale"), 2, 8, (32, 1))
    commands, encoder = record(device)
    encode_scale(encoder, pipeline, device.new_buffer(256), device.new_buffer(256), 64, 0)
    encoder.end()
    with monkeypatch.context() as patch:
        if device.description.driver == "native":
            from pumice_vulkan.device.native import commands as module

            lib = mock.Mock(wraps=module.lib)
            setattr(lib, function, lambda *arguments: -4)  # VK_ERROR_DEVICE_LOST
            if function == "vkWaitForFences":  # a fast device would have ended before anybody waits
                lib.vkGetFenceStatus = lambda *arguments: module.VK_NOT_READY
                patch.setattr(module, "SPIN_SECONDS", 0)
            patch.setattr(module, "lib", lib)
        else:
            lost = RuntimeError(f"vk::{function}: ErrorDeviceLost")
            patch.setattr(commands, "_sequence", mock.Mock(eval_async=mock.Mock(side_effect=lost)))
        message = f"(to|on|for) {re.escape(device.name)}: the driver has reset the device"
        with pytest.raises(BackendError, match=message):
            commands.commit_and_wait()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (b"", "not SPIR-V"),
        (b"\0" * 64, "not SPIR-V"),
        (spirv("scale")[:-40], "invalid at word"),
        (spirv("scale")[:20], "no compute entry point"),
    ],
)
def test_an_invalid_shader_is_an_error(device, code, message):
    with pytest.raises(BackendError, match=message):
        device.new_pipeline(code, 2, 8)


def test_a_shader_that_needs_what_the_device_lacks_is_an_error(device):
    if device.description.cooperative_matrices:
        pytest.skip("the device has cooperative matrices")
    with pytest.raises(BackendError, match="needs cooperative_matrix, which the device does not have"):
        device.new_pipeline(spirv("matrix"), 1, 0)


def test_too_many_push_constants_are_an_error(device):
    size = device.description.push_constant_bytes + 4
    with pytest.raises(BackendError, match=f"{size} bytes of push constants are too many"):
        device.new_pipeline(spirv("scale"), 2, size)


def test_a_dispatch_that_is_not_complete_is_an_error(device):
    pipeline = device.new_pipeline(spirv("scale"), 2, 8, (32, 1))
    buffer = device.new_buffer(64)
    commands, encoder = record(device)
    with pytest.raises(ValueError, match="no pipeline is set"):
        encoder.dispatch_threadgroups(1)
    encoder.set_pipeline(pipeline)
    encoder.set_buffer(0, buffer)
    with pytest.raises(ValueError, match="0 bytes of push constants are set, the pipeline takes 8"):
        encoder.dispatch_threadgroups(1)
    encoder.set_bytes(bytes(8))
    with pytest.raises(ValueError, match="no buffer is set at 1"):
        encoder.dispatch_threadgroups(1)
    encoder.set_buffer(1, buffer)
    with pytest.raises(ValueError, match="a grid of"):
        encoder.dispatch_threadgroups(device.description.max_threadgroups[0] + 1)
    for source, target, size in ((0, 0, 68), (60, 0, 8), (2, 0, 4), (0, 0, 0), (-4, 0, 4)):
        with pytest.raises(ValueError, match="a copy of"):
            encoder.copy_buffer(buffer, source, buffer, target, size)
    encoder.end()
    commands.commit_and_wait()


def test_a_device_or_a_driver_that_is_not_there_is_an_error(driver):
    with pytest.raises(BackendError, match=r"unknown device 99; \d+ found, numbered from 0"):
        open_device(driver, 99)
    with pytest.raises(BackendError, match="unknown driver 'metal'; choose auto, native or kompute"):
        list_devices("metal")


def test_a_driver_that_refuses_memory_is_an_error(driver):
    """Mesa's lavapipe cannot map this much. Kompute does not see failed allocations, so it is not tested."""
    resource = pytest.importorskip("resource")
    if driver == "kompute" or not list_devices(driver)[0].software:
        pytest.skip("only for native on a software device")
    code = f"""
import resource
from pumice.plugin import BackendError
from pumice_vulkan.device import open_device
device = open_device({driver!r})
used = int(open("/proc/self/statm").read().split()[0]) * {resource.getpagesize()}
limit = used + 2**28 + 2**25  # four buffers, and memory for Python
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    while True:
        device.new_buffer(2**26, host=True)
except BackendError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    message = r"vulkan: cannot allocate 67108864 bytes on .*, which holds \d+ already: out of memory; lower .*\n"
    assert re.fullmatch(message, done.stdout)


def test_memory_that_others_hold_runs_out_with_an_error(device, monkeypatch):
    if device.description.driver == "native":
        from pumice_vulkan.device.native import memory

        lib = mock.Mock(wraps=memory.lib)
        lib.vkAllocateMemory = lambda *arguments: -2  # VK_ERROR_OUT_OF_DEVICE_MEMORY
        monkeypatch.setattr(memory, "lib", lib)
    else:
        monkeypatch.setattr(type(device), "free_memory_bytes", 100)
    with pytest.raises(BackendError, match=r"cannot allocate 4096 bytes on .*, which holds 0 already: out of memory; "):
        device.new_buffer(4096)
    assert device.n_allocations == 0
