"""Devices are measured once before a load: by one process, and a failure does not fail the load."""

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import pumice
from pumice.backend import Backend
from pumice.cli.bench import command as bench
from pumice.config import load_config
from pumice.demo import demo_model_path
from pumice.engine.placement.costs import NodeCost, StepPart
from pumice.engine.placement.measuring import measure_before_loading
from pumice.engine.placement.overrides import DeviceName
from pumice.engine.placement.rates import Rates
from pumice.errors import BackendError
from pumice.registry import get_registry

RATES = Rates(memory=1e9, compute=1e11, link=1e9, node_seconds=1e-6, run_seconds=1e-5)
DEVICES = DeviceName("numpy", 0), DeviceName("cpu", 0)
CONFIG = load_config({"backends": ["cpu", "numpy"]})


class Forgetful(dict[str, Rates]):
    """Rates that this process has measured, as another process would read them."""

    def __contains__(self, key: object) -> bool:
        return False


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of backends that were measured, each in a tenth of a second."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("pumice.engine.placement.rates._is_busy", lambda: False)
    monkeypatch.setattr("pumice.engine.placement.rates._measured", Forgetful())
    names: list[str] = []

    def measure(name: str, backend: Backend) -> Rates:
        time.sleep(0.1)
        names.append(name)
        return RATES

    monkeypatch.setattr("pumice.engine.placement.measuring.measure_rates", measure)
    return names


def part(device: DeviceName, n_bytes: int = 0, offload: bool = False) -> StepPart:
    return StepPart(device, (NodeCost(n_bytes, type="Q4_0"),), 0.0, offload=offload)


def measures(devices: Sequence[DeviceName] = DEVICES) -> bool:
    return measure_before_loading([part(device) for device in devices], get_registry(CONFIG), CONFIG)


def test_processes_that_start_at_once_measure_once(measured: list[str]) -> None:
    threads = [threading.Thread(target=measures) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(measured) == ["cpu", "numpy"]


def test_a_failure_is_a_warning(
    measured: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Rates:
        raise BackendError("device lost")

    monkeypatch.setattr("pumice.engine.placement.measuring.measure_rates", fail)
    assert not measures()
    (record,) = [item for item in caplog.records if item.levelno == logging.WARNING]
    assert "device lost" in record.getMessage()


@pytest.mark.parametrize(
    ("flags", "setting", "expected"),
    [([], "", True), (["--no-measure"], "", False), ([], "measure_rates: false", False)],
)
def test_commands_ask_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], setting: str, expected: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pumice.yaml").write_text(setting or "{}")
    seen: list[bool] = []
    load = pumice.load

    def loading(*args: Any, **options: Any) -> Any:
        model = load(*args, **options)
        seen.append(model.config.measure_rates)
        return model

    monkeypatch.setattr(pumice, "load", loading)
    arguments = [str(demo_model_path()), "--backend", "numpy", "-p", "1", "-n", "0", "-r", "1", *flags]
    assert CliRunner().invoke(bench, arguments).exit_code == 0
    assert seen == [expected]
