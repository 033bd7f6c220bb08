"""Both drivers of the device layer keep its contract."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from pumice.plugin import BackendError
from pumice_vulkan.device import list_devices, open_device

SHADERS = Path(__file__).parent / "shaders" / "spv"
VALIDATION = "VK_LAYER_KHRONOS_validation"


def spirv(name):
    return (SHADERS / f"{name}.spv").read_bytes()


def words(buffer):
    return buffer.contents.view(np.uint32)


def random_words(n, seed=0):
    return np.random.default_rng(seed).integers(0, 2**32, n, dtype=np.uint32)


def host_buffer(device, values):
    buffer = device.new_buffer(values.nbytes, host=True)
    words(buffer)[:] = values
    return buffer


def record(device, timestamps=0):
    commands = device.new_command_buffer(timestamps)
    return commands, commands.encoder()


def encode_scale(encoder, pipeline, source, target, n, offset, local_size=32):
    encoder.set_pipeline(pipeline)
    encoder.set_buffer(0, source)
    encoder.set_buffer(1, target)
    encoder.set_bytes(np.array([n, offset], np.uint32))
    encoder.dispatch_threadgroups(-(-n // local_size))


def test_a_device_is_described(driver):
    (first, *_) = list_devices(driver)
    assert (first.index, first.driver) == (0, driver)
    assert re.fullmatch(r"1\.\d+\.\d+", first.api_version)
    assert first.subgroup_size in (1, 2, 4, 8, 16, 32, 64, 128)
    assert first.max_buffer_bytes >= 2**27  # the least that Vulkan allows
    assert first.push_constant_bytes >= 128
    assert first.threadgroup_memory_bytes >= 16384
    with open_device(driver) as device:
        assert device.description == first


def test_words_go_to_the_device_and_back(device):
    values = random_words(1000)
    source, target = host_buffer(device, values), host_buffer(device, np.zeros(1000, np.uint32))
    middle = device.new_buffer(4000)
    commands, encoder = record(device)
    encoder.copy_buffer(source, 0, middle, 0, 4000)
    encoder.barrier()
    encoder.copy_buffer(middle, 400, target, 40, 2000)
    encoder.end()
    commands.commit_and_wait()
    expected = np.zeros(1000, np.uint32)
    expected[10:510] = values[100:600]
    np.testing.assert_array_equal(words(target), expected)


def test_constants_and_push_constants_reach_the_shader(device):
    n = 777
    values = random_words(n)
    source, first, second = (host_buffer(device, values) for _ in range(3))
    by_3 = device.new_pipeline(spirv("scale"), 2, 8, (64, 3))
    by_5 = device.new_pipeline(spirv("scale"), 2, 8, (16, 5))
    commands, encoder = record(device)
    encode_scale(encoder, by_3, source, first, n, 11, local_size=64)
    encode_scale(encoder, by_5, source, second, n - 1, 2**32 - 1, local_size=16)
    encoder.end()
    commands.commit_and_wait()
    np.testing.assert_array_equal(words(first), values * 3 + 11)
    np.testing.assert_array_equal(words(second)[:-1], (values * 5 - 1)[:-1])
    assert words(second)[-1] == values[-1]


def test_what_is_set_stays_until_it_is_set_again(device):
    n = 64
    source, target, other = (host_buffer(device, np.arange(n, dtype=np.uint32)) for _ in range(3))
    pipeline = device.new_pipeline(spirv("scale"), 2, 8, (32, 1))
    commands, encoder = record(device)
    encode_scale(encoder, pipeline, source, target, n, 100)
    encoder.set_buffer(1, other)
    encoder.dispatch_threadgroups(2)
    encoder.barrier()
    encoder.set_buffer(0, other)
    encoder.set_bytes(np.array([n // 2, 1000], np.uint32).tobytes())
    encoder.set_buffer(1, source)
    encoder.dispatch_threadgroups(2)
    encoder.end()
    commands.commit_and_wait()
    np.testing.assert_array_equal(words(other), np.arange(n) + 100)
    np.testing.assert_array_equal(words(source)[: n // 2], np.arange(n // 2) + 1100)
    np.testing.assert_array_equal(words(source)[n // 2 :], np.arange(n // 2, n))


def test_a_chain_of_dependent_dispatches_is_right_each_time_it_is_replayed(device):
    n, links = 50_000, 30
    pipeline = device.new_pipeline(spirv("neighbours"), 2, 8)
    source, target = device.new_buffer(4 * n, host=True), device.new_buffer(4 * n, host=True)
    here, there = device.new_buffer(4 * n), device.new_buffer(4 * n)
    commands, encoder = record(device)
    encoder.copy_buffer(source, 0, here, 0, 4 * n)
    encoder.set_pipeline(pipeline)
    for link in range(links):
        encoder.barrier()
        encoder.set_buffer(0, here)
        encoder.set_buffer(1, there)
        encoder.set_bytes(np.array([n, 997 * link], np.uint32))
        encoder.dispatch_threadgroups(-(-n // 64))
        here, there = there, here
    encoder.barrier()
    encoder.copy_buffer(here, 0, target, 0, 4 * n)
    encoder.end()
    made = device.n_allocations, device.allocated_bytes
    for replay in range(5):
        expected = random_words(n, replay)
        words(source)[:] = expected
        commands.commit_and_wait()
        for link in range(links):
            expected = expected + np.roll(expected, -997 * link)
        np.testing.assert_array_equal(words(target), expected)
    assert (device.n_allocations, device.allocated_bytes) == made


def doubling(device, n=64):
    """Commands that write twice what is in a buffer to it, and the buffer."""
    buffer = host_buffer(device, np.full(n, 3, np.uint32))
    commands, encoder = record(device)
    encode_scale(encoder, device.new_pipeline(spirv("scale"), 2, 8, (32, 2)), buffer, buffer, n, 0)
    encoder.end()
    return commands, buffer


def test_what_is_held_begins_with_its_commit(device):
    commands, buffer = doubling(device)
    for number in range(1, 4):
        commands.hold()
        words(buffer)[:] = number
        commands.commit_and_wait()
        assert set(words(buffer)) == {2 * number}
    commands.commit_and_wait()
    assert set(words(buffer)) == {4 * 3}


def test_nothing_waits_for_what_is_held(driver):
    with open_device(driver) as device:
        holds = driver == "native" and "timeline_semaphore" in device.features
        held, first = doubling(device)
        other, second = doubling(device)
        held.hold()
        other.hold()
        other.commit_and_wait()
        assert set(words(second)) == {6}
        held.commit_and_wait()
        assert set(words(first)) == {3 * 2 ** (1 + holds)}, "it began before the other, and again"
        held.hold()
        held.close()
        other.hold()


def test_command_buffers_run_in_the_order_of_their_commits(device):
    n = 20_000
    pipeline = device.new_pipeline(spirv("scale"), 2, 8, (32, 1))
    first, second = host_buffer(device, np.zeros(n, np.uint32)), device.new_buffer(4 * n)
    there, encoder = record(device)
    encode_scale(encoder, pipeline, first, second, n, 1)
    encoder.end()
    back, encoder = record(device)
    encode_scale(encoder, pipeline, second, first, n, 10)
    encoder.end()
    for _ in range(10):
        there.commit()
        back.commit()
    back.wait()
    assert set(words(first)) == {110}


def test_an_interrupted_wait_can_be_made_good(device, monkeypatch):
    if device.description.driver != "native":
        pytest.skip("Kompute waits in C")
    n = 20_000
    pipeline = device.new_pipeline(spirv("scale"), 2, 8, (32, 1))
    first, second = host_buffer(device, np.zeros(n, np.uint32)), host_buffer(device, np.zeros(n, np.uint32))
    commands, encoder = record(device)
    encode_scale(encoder, pipeline, first, second, n, 7)
    encoder.end()

    def interrupted(handle):
        raise KeyboardInterrupt

    commands.commit()
    with monkeypatch.context() as patch:
        patch.setattr(commands, "_spin", interrupted)
        with pytest.raises(KeyboardInterrupt):
            commands.wait()
    commands.wait()
    assert set(words(second)) == {7}
    words(second)[:] = 0
    commands.commit_and_wait()
    assert set(words(second)) == {7}


def test_timestamps_grow(device):
    if not device.timestamp_period_ns:
        pytest.skip("the device has no timestamps")
    n = 100_000
    pipeline = device.new_pipeline(spirv("scale"), 2, 8, (32, 3))
    source, target = device.new_buffer(4 * n), device.new_buffer(4 * n)
    commands, encoder = record(device, timestamps=3)
    for index in range(3):
        encoder.timestamp(index)
        encode_scale(encoder, pipeline, source, target, n, 0)
        encoder.barrier()
    with pytest.raises(ValueError, match="timestamp 3: the command buffer was made for 3"):
        encoder.timestamp(3)
    encoder.end()
    for _ in range(2):
        commands.commit_and_wait()
        start, middle, end = commands.timestamps()
        assert start == 0
        assert 0 < middle < end < 10e6


def test_a_closed_buffer_gives_its_memory_back_and_its_bindings(device):
    pipeline = device.new_pipeline(spirv("scale"), 2, 8, (32, 1))
    source = host_buffer(device, np.arange(64, dtype=np.uint32))
    before = device.n_allocations, device.allocated_bytes
    for offset in range(20):  # handles are used again
        target = device.new_buffer(256, host=True)
        assert (device.n_allocations, device.allocated_bytes) == (before[0] + 1, before[1] + 256)
        commands, encoder = record(device)
        encode_scale(encoder, pipeline, source, target, 64, offset)
        encoder.end()
        commands.commit_and_wait()
        np.testing.assert_array_equal(words(target), np.arange(64) + offset)
        commands.close()
        target.close()
        target.close()
        assert (device.n_allocations, device.allocated_bytes) == before
        with pytest.raises(ValueError, match="open buffers"):
            _ = target.contents


def test_only_host_buffers_show_their_contents(device):
    with pytest.raises(ValueError, match="host=True"):
        _ = device.new_buffer(16).contents


def test_closing_the_device_closes_what_it_made(driver):
    device = open_device(driver)
    device.new_buffer(1024)
    device.new_pipeline(spirv("scale"), 2, 8, (32, 1))
    device.new_command_buffer(4)
    device.close()
    device.close()
    assert (device.n_allocations, device.allocated_bytes) == (0, 0)


@pytest.mark.parametrize(("most", "expected"), [(2**20, 2**20), (0, None)])
def test_each_limit_of_buffers_counts(driver, monkeypatch, most, expected):
    """That of Vulkan 1.3, which is 0 where the driver has an older one."""
    from pumice_vulkan.device.native.instance import instance

    (physical, *_) = instance().devices
    monkeypatch.setattr(physical, "buffers", SimpleNamespace(maxBufferSize=most))
    others = min(physical.limits.maxStorageBufferRange, physical.maintenance.maxMemoryAllocationSize, 2**32 - 16)
    assert physical.describe(0).max_buffer_bytes == (expected or others // 16 * 16)


def test_a_buffer_that_is_too_large_is_an_error(device):
    size = device.max_buffer_bytes + 4
    with pytest.raises(BackendError, match=rf"a buffer of {size} bytes is too large for .*: at most \d+"):
        device.new_buffer(size)
    assert device.n_allocations == 0


@pytest.mark.parametrize("size", [0, -4, 6])
def test_a_buffer_holds_whole_words(device, size):
    with pytest.raises(ValueError, match="multiple of 4"):
        device.new_buffer(size)


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
            device.new_buffer(device.max_buffer_bytes)

    with pytest.raises(BackendError, match="out of memory"):
        fill()
    assert device.allocated_bytes > 0.5 * device.memory_bytes


def test_memory_that_others_hold_runs_out_with_an_error(device, monkeypatch):
    if device.description.driver == "native":
        import vulkan

        from pumice_vulkan.device.native import memory

        lib = mock.Mock(wraps=memory.lib)
        lib.vkAllocateMemory = lambda *arguments: vulkan.VK_ERROR_OUT_OF_DEVICE_MEMORY
        monkeypatch.setattr(memory, "lib", lib)
    else:
        monkeypatch.setattr(type(device), "free_memory_bytes", 100)
    with pytest.raises(BackendError, match=r"cannot allocate 4096 bytes on .*, which holds 0 already: out of memory; "):
        device.new_buffer(4096)
    assert device.n_allocations == 0


@pytest.mark.parametrize("function", ["vkQueueSubmit", "vkWaitForFences"])
def test_a_lost_device_is_an_error(device, monkeypatch, function):
    pipeline = device.new_pipeline(spirv("scale"), 2, 8, (32, 1))
    commands, encoder = record(device)
    encode_scale(encoder, pipeline, device.new_buffer(256), device.new_buffer(256), 64, 0)
    encoder.end()
    with monkeypatch.context() as patch:
        if device.description.driver == "native":
            import vulkan

            from pumice_vulkan.device.native import commands as module

            lib = mock.Mock(wraps=module.lib)
            setattr(lib, function, lambda *arguments: vulkan.VK_ERROR_DEVICE_LOST)
            if function == "vkWaitForFences":  # a fast device would have ended before anybody waits
                lib.vkGetFenceStatus = lambda *arguments: module.NOT_READY
                patch.setattr(module, "SPIN_SECONDS", 0)
            patch.setattr(module, "lib", lib)
        else:
            lost = RuntimeError(f"vk::{function}: ErrorDeviceLost")
            patch.setattr(commands, "_sequence", mock.Mock(eval_async=mock.Mock(side_effect=lost)))
        with pytest.raises(
            BackendError, match=f"(to|on|for) {re.escape(device.name)}: the driver has reset the device"
        ):
            commands.commit_and_wait()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (b"", "not SPIR-V"),
        (b"\0" * 64, "not SPIR-V"),
        (spirv("scale")[:-40], "broken at word"),
        (spirv("scale")[:20], "no compute entry point"),
    ],
)
def test_what_is_no_shader_is_an_error(device, code, message):
    with pytest.raises(BackendError, match=message):
        device.new_pipeline(code, 2, 8)


def test_a_shader_that_needs_what_the_device_lacks_is_an_error(device):
    if device.cooperative_matrices:
        pytest.skip("the device has cooperative matrices")
    with pytest.raises(BackendError, match="needs cooperative_matrix, which the device does not have"):
        device.new_pipeline(spirv("matrix"), 1, 0)


def test_too_many_push_constants_are_an_error(device):
    size = device.push_constant_bytes + 4
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
        encoder.dispatch_threadgroups(device.max_threadgroups[0] + 1)
    for source, target, size in ((0, 0, 68), (60, 0, 8), (2, 0, 4), (0, 0, 0), (-4, 0, 4)):
        with pytest.raises(ValueError, match="a copy of"):
            encoder.copy_buffer(buffer, source, buffer, target, size)
    encoder.end()
    commands.commit_and_wait()


def test_a_device_that_is_not_there_is_an_error(driver):
    with pytest.raises(BackendError, match=r"no device 99; there (is|are) \d+, from 0 on"):
        open_device(driver, 99)


def test_an_unknown_driver_is_an_error():
    with pytest.raises(BackendError, match="no driver 'metal'; choose auto, kompute or native"):
        list_devices("metal")


def test_kompute_leaves_logging_alone():
    pytest.importorskip("kp", reason="kp is not installed")
    code = "import logging, pumice_vulkan.device.kompute; assert not logging.root.handlers"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_driver_that_refuses_memory_is_an_error(driver):
    """What mesa's lavapipe cannot map. Kompute does not see that an allocation failed, so it is not asked."""
    resource = pytest.importorskip("resource")
    if driver == "kompute" or not list_devices(driver)[0].software:
        pytest.skip("only for native on a software device")
    code = f"""
import resource
from pumice.plugin import BackendError
from pumice_vulkan.device import open_device
device = open_device({driver!r})
used = int(open("/proc/self/statm").read().split()[0]) * {resource.getpagesize()}
resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
try:
    while True:
        device.new_buffer(2**26)
except BackendError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.fullmatch(
        r"vulkan: cannot allocate 67108864 bytes on .*, which holds \d+ already: out of memory; lower .*\n", done.stdout
    )


@pytest.fixture
def validate(driver, tmp_path):
    """Runs Python under the Khronos validation layer, and gives all it printed."""
    if driver != "native":
        pytest.skip("Kompute records what it records")
    import vulkan

    if VALIDATION not in {layer.layerName for layer in vulkan.vkEnumerateInstanceLayerProperties()}:
        pytest.skip(f"{VALIDATION} is not installed (Debian: vulkan-validationlayers)")
    settings = tmp_path / "vk_layer_settings.txt"
    settings.write_text(
        "khronos_validation.report_flags = error,warn\nkhronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG\n"
    )
    environment = os.environ | {
        "VK_INSTANCE_LAYERS": VALIDATION,
        "VK_LAYER_SETTINGS_PATH": str(settings),
        "VK_LAYER_ENABLES": "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT",
    }

    def run(*arguments):
        done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return run


def test_validation_has_nothing_to_say(validate):
    only = "native and not validation and not refuses"
    status, output = validate("-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-k", only, __file__)
    assert status == 0, output
    assert "Validation" not in output
    assert "VUID" not in output


def test_validation_sees_a_missing_barrier(validate):
    code = f"""
from pathlib import Path
from pumice_vulkan.device import open_device
device = open_device("native")
commands = device.new_command_buffer()
encoder = commands.encoder()
encoder.set_pipeline(device.new_pipeline(Path({str(SHADERS / "neighbours.spv")!r}).read_bytes(), 2, 8))
encoder.set_bytes(bytes(8))
here, there = device.new_buffer(64), device.new_buffer(64)
for source, target in ((here, there), (there, here)):
    encoder.set_buffer(0, source)
    encoder.set_buffer(1, target)
    encoder.dispatch_threadgroups(1)
encoder.end()
device.close()
"""
    _, output = validate("-c", code)
    assert "SYNC-HAZARD" in output
