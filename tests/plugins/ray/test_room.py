"""Requests for more than the cluster has are an error in one line."""

import logging
from typing import Any

import pytest

from pumice_ray.room import find_room, fits

GIB = 2.0**30


@pytest.mark.parametrize(
    ("bundles", "machines", "fit"),
    [
        ([{"CPU": 1}], [{"CPU": 1}], True),
        ([{"CPU": 2}], [{"CPU": 1}, {"CPU": 1}], False),
        ([{"CPU": 1}] * 3, [{"CPU": 1}, {"CPU": 2}], True),
        ([{"CPU": 1, "GPU": 1}] * 2, [{"CPU": 8, "GPU": 1}, {"CPU": 8}], False),
        ([{"memory": 2 * GIB}] * 2, [{"memory": 3 * GIB}], False),
        ([{}], [], False),
    ],
)
def test_each_machine_gives_what_it_has_once(bundles: Any, machines: Any, fit: bool) -> None:
    assert fits(bundles, machines) == fit


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"CPU": 1.0}, ""),
        (
            {"CPU": 8.0, "GPU": 1.0},
            "no room in the cluster: requested 1 x 8 CPU, 1 GPU, its machines have 4 CPU, 0 GPU; "
            "2 CPU, 0 GPU; waiting for it",
        ),
        ({"CPU": 4.0}, "no free resources in the cluster: requested 1 x 4 CPU, free: 1 CPU; waiting for it"),
        (
            {"memory": 40 * GIB},
            "no room in the cluster: requested 1 x 40.0 GiB, its machines have 16.0 GiB; 0.0 GiB; waiting for it",
        ),
    ],
)
def test_requested_and_available_resources_are_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, asked: dict[str, float], said: str
) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'pumice[ray]'")
    machines = [{"CPU": 4.0, "memory": 16 * GIB}, {"CPU": 2.0}]
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": each} for each in machines])
    monkeypatch.setattr(ray, "available_resources", lambda: {"CPU": 1.0, "memory": 16 * GIB})
    with caplog.at_level(logging.WARNING, "pumice"):
        find_room([asked])
    assert caplog.messages == [said] * bool(said)
