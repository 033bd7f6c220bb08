"""Exceptions of plugins."""

import errno

import pytest

from pumice.errors import PluginError
from pumice.guard import guarded


def test_an_exception_names_the_plugin():
    with pytest.raises(PluginError, match=r"^backend 'x': KeyError: 'y'$"):
        guarded({}.__getitem__, "backend 'x'")("y")


def test_a_system_call_without_memory_is_a_memory_error():
    def mapped() -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with pytest.raises(MemoryError):
        guarded(mapped, "backend 'x'")()
