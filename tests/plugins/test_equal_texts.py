"""Random requests give the same with drafts and without; `python bench/random_requests.py` makes many more."""

from pathlib import Path

import pytest

from equal_texts import MODELS, unequal


@pytest.mark.parametrize(
    "name",
    [*MODELS, "deepseek2", "jamba", "step35", "dflash-windows", "eagle3-few-tokens", "dspark", "gemma4-assistant"],
)
def test_random_requests_give_the_same(tmp_path: Path, name: str) -> None:
    results = list(unequal(name, tmp_path, requests=12, seed=100))
    assert [request for request, *_ in results if request] == []
    assert sum(n_drafted for *_, n_drafted, _ in results) > 0
