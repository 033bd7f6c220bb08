"""Exceptions of plugins."""

import errno
import sys

import pytest

from pumice.errors import PluginError
from pumice.guard import Terminated, guarded


def test_an_exception_names_the_plugin():
    with pytest.raises(PluginError, match=r"^backend 'x': KeyError: 'y'$"):
        guarded({}.__getitem__, "backend 'x'")("y")


def test_the_end_of_the_process_is_no_defect_of_a_plugin():
    def ended() -> None:
        raise Terminated(143)

    with pytest.raises(Terminated, match="143"):
        guarded(ended, "backend 'x'")()
    with pytest.raises(PluginError, match="SystemExit: 143"):
        guarded(sys.exit, "backend 'x'")(143)


def test_a_system_call_without_memory_is_a_memory_error():
    def mapped() -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with pytest.raises(MemoryError):
        guarded(mapped, "backend 'x'")()
