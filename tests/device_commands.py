"""Shaders, buffers and command buffers for tests of the Vulkan device layer."""

from pathlib import Path

import numpy as np

SHADERS = Path(__file__).parent / "plugins" / "vulkan" / "shaders" / "spv"


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
