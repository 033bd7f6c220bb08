"""What a replica has in hand, in Ray's own exporter of metrics."""

from __future__ import annotations

from ray.util.metrics import Gauge

from pumice.engine.messages import Snapshot
from pumice_server.metrics import IN_HAND, in_hand


class Gauges:
    """Those of one replica, whose name is a label, by the names of ``/metrics`` of the server after ``ray_``."""

    def __init__(self, model: str, replica: str) -> None:
        self._gauges = {
            name: Gauge(f"pumice_engine_{name}", text, ("model", "replica")) for name, text in IN_HAND.items()
        }
        for gauge in self._gauges.values():
            gauge.set_default_tags({"model": model, "replica": replica})

    def set(self, snapshot: Snapshot) -> None:
        for name, value in in_hand(snapshot).items():
            self._gauges[name].set(value)
