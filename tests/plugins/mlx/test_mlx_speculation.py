"""MLX verifies drafts of every proposer: the answers are those without, log-probabilities up to rounding."""

from pathlib import Path

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from equal_texts import unequal


@pytest.mark.parametrize(
    ("name", "proposer", "seed"), [("rope-plain", "draft", 0), ("glm4moe", "mtp", 1), ("mamba", "prediction", 1)]
)
def test_random_requests_get_the_same(tmp_path: Path, name: str, proposer: str, seed: int) -> None:
    results = list(unequal(name, tmp_path, 20, seed, backend="mlx"))
    assert [request for request, *_ in results if request] == []
    assert sum(n_drafted for _, choice, n_drafted, _ in results if proposer in choice) > 0  # how many depends on costs
