"""Requests for more than the cluster has are an error in one line."""

from typing import Any

import pytest

from pumice_ray.room import fits

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
