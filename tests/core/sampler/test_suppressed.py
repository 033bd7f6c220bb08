"""``tokenizer.ggml.suppress_tokens``: tokens that a model never generates."""

from pathlib import Path
from typing import Any

import pytest

import pumice
from gguf_files import tiny_llama


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_suppressed_tokens_are_never_chosen(tmp_path: Path, backend: str) -> None:
    def greedy(name: str, **more: Any) -> list[int]:
        path = tiny_llama(tmp_path / name, more=more)
        with pumice.load(path, backend=backend) as model:
            return list(model.generate([5, 6, 7], max_tokens=12, temperature=0).tokens)

    usual = greedy("usual.gguf")
    never = [*set(usual[:3]), -1, 99999]
    found = greedy("suppressed.gguf", **{"tokenizer.ggml.suppress_tokens": never})
    assert len(found) == 12
    assert not set(found) & set(never)
    first = greedy("last.gguf", **{"tokenizer.ggml.suppress_tokens": [t for t in range(300) if t != usual[0]]})
    assert set(first) == {usual[0]}


@pytest.mark.parametrize("wrong", [7, "text", [1.5], ["a"]])
def test_invalid_lists_of_tokens_are_refused(tmp_path: Path, wrong: Any) -> None:
    path = tiny_llama(tmp_path / "model.gguf", more={"tokenizer.ggml.suppress_tokens": wrong})
    with pytest.raises(pumice.PumiceError, match=r"suppress_tokens must be a list of token ids"):
        pumice.load(path, backend="numpy").generate("a", max_tokens=1)
