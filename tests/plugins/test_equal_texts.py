"""Random requests give the same with drafts and without; `python bench/random_requests.py` makes many more."""

from pathlib import Path

import pytest

from equal_texts import MODELS, unequal

NAMES = [
    *(*MODELS, "deepseek2", "gpt-oss", "jamba", "qwen35", "rwkv7", "step35", "dflash-windows", "dflash2"),
    *("dspark", "dspark-behind-a-token", "eagle3-few-tokens", "gemma4-assistant"),
]


@pytest.mark.parametrize(
    ("name", "backend"), [*((name, "cpu") for name in NAMES), ("rope-plain", "numpy"), ("mamba", "numpy")]
)
def test_random_requests_give_the_same(tmp_path: Path, name: str, backend: str) -> None:
    results = list(unequal(name, tmp_path, requests=12 if backend == "cpu" else 6, seed=100, backend=backend))
    assert [request for request, *_ in results if request] == []
    assert sum(n_drafted for *_, n_drafted, _ in results) > 0
