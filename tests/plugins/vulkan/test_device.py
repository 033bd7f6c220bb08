"""Both drivers of the device layer keep its contract."""

from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from device_commands import encode_scale, host_buffer, random_words, record, spirv, words
from pumice_vulkan.device import open_device


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


def test_bindings_stay_until_they_are_set_again(device):
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


def test_held_commands_begin_with_their_commit(device):
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


def adding(device, source, target, n, offset):
    """Commands that write the words of a buffer to another one, each greater by ``offset``."""
    commands, encoder = record(device)
    encode_scale(encoder, device.new_pipeline(spirv("scale"), 2, 8, (32, 1)), source, target, n, offset)
    encoder.end()
    return commands


def test_command_buffers_run_in_the_order_of_their_commits(device):
    n = 20_000
    first, second = host_buffer(device, np.zeros(n, np.uint32)), device.new_buffer(4 * n)
    there, back = adding(device, first, second, n, 1), adding(device, second, first, n, 10)
    for _ in range(10):
        there.commit()
        back.commit()
    back.wait()
    assert set(words(first)) == {110}


def test_an_interrupted_wait_can_be_made_good(device, monkeypatch):
    if device.description.driver != "native":
        pytest.skip("Kompute waits in C")
    n = 20_000
    first, second = (host_buffer(device, np.zeros(n, np.uint32)) for _ in range(2))
    commands = adding(device, first, second, n, 7)
    commands.commit()
    with monkeypatch.context() as patch:
        patch.setattr(commands, "_spin", mock.Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            commands.wait()
    commands.wait()
    assert set(words(second)) == {7}
    words(second)[:] = 0
    commands.commit_and_wait()
    assert set(words(second)) == {7}


def test_a_closed_buffer_gives_its_memory_back_and_its_bindings(device):
    source = host_buffer(device, np.arange(64, dtype=np.uint32))
    before = device.n_allocations, device.allocated_bytes
    for offset in range(20):  # handles are used again
        target = device.new_buffer(256, host=True)
        assert (device.n_allocations, device.allocated_bytes) == (before[0] + 1, before[1] + 256)
        commands = adding(device, source, target, 64, offset)
        commands.commit_and_wait()
        np.testing.assert_array_equal(words(target), np.arange(64) + offset)
        commands.close()
        target.close()
        target.close()
        assert (device.n_allocations, device.allocated_bytes) == before
        with pytest.raises(ValueError, match="open buffers"):
            _ = target.contents


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
    """The limit of Vulkan 1.3 is 0 if the driver has an older version."""
    from pumice_vulkan.device.native.instance import instance

    (physical, *_) = instance().devices
    monkeypatch.setattr(physical, "buffers", SimpleNamespace(maxBufferSize=most))
    others = min(physical.limits.maxStorageBufferRange, physical.maintenance.maxMemoryAllocationSize, 2**32 - 16)
    assert physical.describe(0).max_buffer_bytes == (expected or others // 16 * 16)
