"""Fixtures of the engine's tests."""

import pytest

from pumice.engine.loop import lookahead


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of steps does not depend on the clock."""
    monkeypatch.setattr(lookahead, "SECONDS", 1e9)
