"""Residual streams without the constant by which a model multiplies the results of its blocks."""

from pathlib import Path

import pytest

from pumice_vulkan.fuse import parts
from tiny_zoo import ZOO
from tools import gpu_profiles


@pytest.mark.parametrize(("name", "n_scales"), [("granite", 2), ("minicpm", 2), ("gemma2", 3)])
def test_only_embeddings_and_logits_are_scaled(tmp_path: Path, name: str, n_scales: int) -> None:
    """Gemma 2 has two scales around the bound of its logits; none is of a block's result."""
    with gpu_profiles.captured(ZOO[name].write(tmp_path / "model.gguf")) as (segment, _, _):
        ops = [node.op for node in parts(segment)]
    assert ops.count("scale") == n_scales
    assert "add" in ops
