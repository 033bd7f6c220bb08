"""The device verifies drafts: the texts are those without, and those of the NumPy backend."""

from pathlib import Path
from typing import Any

import pytest

import pumice
from equal_texts import write_model

pytestmark = pytest.mark.usefixtures("vulkan_device")

PROMPTS = ["abcabcabcabc", "fe fe fe"]


def texts(path: Path, backend: str, speculate: str, **config: Any) -> tuple[list[Any], int]:
    """Return the tokens of each prompt, and the number of accepted drafted tokens."""
    options: dict[str, Any] = {"n_ctx": 64, "n_batch": 8, "n_parallel": 2}
    with pumice.load(path, backend=backend, config={"speculate": speculate, **config}, **options) as model:
        completions = model.generate_many(PROMPTS, max_tokens=30, temperature=0)
    assert all(done.timings.drafts_exact == (not done.timings.n_drafted) for done in completions)
    return [done.tokens for done in completions], sum(done.timings.n_accepted for done in completions)


@pytest.mark.parametrize("name", ["rope-plain", "mamba"])
def test_texts_are_those_of_numpy(tmp_path: Path, name: str) -> None:
    """With drafts of the device (of the host for recurrent states), and a draft model that is the model itself."""
    path = write_model(name, tmp_path)
    expected, _ = texts(path, "numpy", "off")
    choices: list[tuple[str, dict[str, Any]]] = [("ngram", {"n_draft": 3})]
    choices.append(("draft", {"n_draft": 3, "draft": str(path), "draft_p_min": 0.0}))
    for choice, config in choices if name == "rope-plain" else choices[:1]:
        tokens, n_accepted = texts(path, "vulkan", choice, **config)
        assert tokens == expected
        assert n_accepted > 10


def test_nothing_is_drafted_by_default(tmp_path: Path) -> None:
    """Since results depend on the number of rows."""
    tokens, n_accepted = texts(write_model("rope-plain", tmp_path), "vulkan", "auto")
    assert all(tokens)
    assert n_accepted == 0
