"""Numbers of threads: as many as cores by default, and never thousands."""

import pytest

from pumice.machine import bounded_threads, cores


def test_more_threads_than_cores_can_use_are_not_started(caplog: pytest.LogCaptureFixture) -> None:
    assert bounded_threads(3, "threads") == 3
    assert bounded_threads(0, "threads") == cores()
    assert not caplog.text
    assert bounded_threads(9999, "threads") == max(16, cores())
    assert "threads is 9999, but this process has" in caplog.text
