"""Residual streams without the constant by which a model multiplies the results of its blocks."""

from pathlib import Path

import pytest

from pumice_vulkan import tuning
from pumice_vulkan.fuse import parts
from pumice_vulkan.profiles import PROFILES
from tiny_zoo import ZOO
from tools import gpu_profiles


@pytest.mark.parametrize(("name", "n_scales"), [("granite", 2), ("minicpm", 2), ("gemma2", 3)])
def test_only_embeddings_and_logits_are_scaled(tmp_path: Path, name: str, n_scales: int) -> None:
    """Gemma 2 has two scales around the bound of its logits; none is of a block's result."""
    with gpu_profiles.captured(ZOO[name].write(tmp_path / "model.gguf")) as (segment, _, _):
        ops = [node.op for node in parts(segment)]
    assert ops.count("scale") == n_scales
    assert "add" in ops


def test_the_stream_is_added_by_dispatches_of_their_own_where_products_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sums a layer, of the prompt alone: a step of one token has few values."""
    with gpu_profiles.captured(gpu_profiles.write_model(tmp_path / "model.gguf")) as compiled:
        description = PROFILES["hopper-h200"].described()

        def n_sums() -> list[int]:
            chosen = gpu_profiles.dispatches(description, compiled)
            return [sum(dispatch.kernel == "binary.add" for dispatch in chosen[name]) for name in ("1 token", "prompt")]

        assert n_sums() == [0, 0]
        monkeypatch.setattr(tuning, "ADDED_ALONE", 2 * 256)
        assert n_sums() == [0, 4]
