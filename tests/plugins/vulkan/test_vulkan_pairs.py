"""Every kind of request beside every other on a Vulkan device."""

from pathlib import Path

import pytest

from nightly import variants
from pairs import MODELS, loaded, write, wrong_pairs

pytestmark = pytest.mark.usefixtures("vulkan_device", "kept_pipelines")


@pytest.mark.parametrize("name", variants(MODELS, ["encoder"]))
def test_two_requests_at_once_are_as_alone(tmp_path: Path, name: str) -> None:
    with loaded(write(name, tmp_path), backend="vulkan", kv_type="f32") as model:
        assert wrong_pairs(model, MODELS[name][1], n_times=1) == []
