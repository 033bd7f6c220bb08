"""With ``vulkan.batch_invariant`` the results of a row are the same bits for 1 to 16 rows, so drafts are exact."""

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from equal_texts import write_model
from nightly import variants
from places import taken
from pumice.engine import Engine
from pumice.engine.requests.batches import Part, batch_of

pytestmark = pytest.mark.usefixtures("vulkan_device", "kept_pipelines")

MODELS = ["demo", "gemma2", "glm4moe", "mamba2", "rwkv7"]
INVARIANT = {"vulkan": {"batch_invariant": True}}
OPTIONS: dict[str, Any] = {"backend": "vulkan", "n_ctx": 96, "n_batch": 16, "n_parallel": 2}


def logits_of(model: pumice.Model, sizes: Sequence[int]) -> np.ndarray:
    """The logits of all tokens of a text that is read in steps of these sizes."""

    def steps(engine: Engine) -> Generator[None, None, np.ndarray]:
        found, first = [], 0
        with taken(engine, sum(sizes)) as (place,):
            for n in sizes:
                ids = [(7 * i + 3) % 30 for i in range(first, first + n)]
                batch = batch_of(engine.cache, [Part(place, ids, first, range(n))])
                found.append(engine.runner.outputs(batch)["logits"].copy())
                first += n
                yield
        return np.concatenate(found)

    return model.engine.thread.call(steps)


@pytest.mark.parametrize("name", variants(MODELS, ["gemma2", "glm4moe", "mamba2", "rwkv7"]))
def test_a_row_has_the_same_bits_in_any_step(tmp_path: Path, name: str) -> None:
    with pumice.load(write_model(name, tmp_path), config=INVARIANT, **OPTIONS) as model:
        alone = logits_of(model, [1] * 20)
        for sizes in ([2, 4, 8, 6], [16, 4], [3, 1, 7, 9]):
            np.testing.assert_array_equal(logits_of(model, sizes), alone)


def test_drafts_are_exact(tmp_path: Path) -> None:
    """So they are made by default."""
    path = write_model("rope-plain", tmp_path)
    requests: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 0.3, "top_k": 9, "repeat_penalty": 1.1, "seed": 4},
    ]
    with pumice.load(path, config=INVARIANT, **OPTIONS) as model:
        assert model.engine.thread.call(_is_default)
        for request in requests:
            expected = model.generate("abcabcabcabc", max_tokens=50, speculate="off", **request)
            found = model.generate("abcabcabcabc", max_tokens=50, speculate="ngram", **request)
            assert found.tokens == expected.tokens
            assert found.timings.drafts_exact
    with pumice.load(path, config=INVARIANT | {"n_draft": 7, "speculate": "ngram"}, **OPTIONS) as model:
        done = model.generate("abcabcabcabc", max_tokens=50, temperature=0)
        assert done.timings.n_accepted > 10
        assert done.timings.drafts_exact


def _is_default(engine: Engine) -> Generator[None, None, bool]:
    yield
    return engine.speculation.is_default
