"""The load of a replica as metrics of Ray's exporter."""

from __future__ import annotations

from ray.util.metrics import Gauge

from pumice.engine.messages import Snapshot
from pumice_server.models.metrics import ENGINE_GAUGES, engine_gauges


class Gauges:
    """Gauges of one replica, labelled with its name; named as in the server's ``/metrics``, after ``ray_``."""

    def __init__(self, model: str, replica: str) -> None:
        self._gauges = {
            name: Gauge(f"pumice_engine_{name}", text, ("model", "replica")) for name, text in ENGINE_GAUGES.items()
        }
        for gauge in self._gauges.values():
            gauge.set_default_tags({"model": model, "replica": replica})

    def set(self, snapshot: Snapshot) -> None:
        for name, value in engine_gauges(snapshot).items():
            self._gauges[name].set(value)
