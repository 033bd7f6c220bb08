"""The devices that Ray keeps for an actor, as options of ``pumice.load``."""

from types import SimpleNamespace
from typing import Any

import pytest

from pumice_ray.actor import own_devices


@pytest.mark.parametrize(
    ("gpus", "cpus", "given", "config"),
    [
        (["0", "3"], 0.5, {}, {"vulkan": {"devices": [0, 3]}}),
        (["GPU-8932f937", "1"], 2.0, {}, {"vulkan": {"devices": ["GPU-8932f937", 1]}, "cpu": {"threads": 2}}),
        (["2"], 0, {"vulkan": {"devices": [5], "driver": "native"}}, {"vulkan": {"devices": [5], "driver": "native"}}),
        ([], 3.0, {"cpu": {"threads": 1}}, {"cpu": {"threads": 1}}),
    ],
)
def test_they_are_those_of_the_actor_unless_others_are_named(
    monkeypatch: pytest.MonkeyPatch, gpus: list[str], cpus: float, given: dict[str, Any], config: dict[str, Any]
) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'pumice[ray]'")
    context = SimpleNamespace(
        get_accelerator_ids=lambda: {"GPU": gpus}, get_assigned_resources=lambda: {"CPU": cpus, "GPU": len(gpus)}
    )
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    assert own_devices({"n_ctx": 64, "config": given}) == {"n_ctx": 64, "config": config}
