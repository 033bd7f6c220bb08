"""Layers that draft tokens, against llama.cpp."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pumice
from pumice.architecture import DRAFT, FEATURES, MAIN
from pumice.engine import Engine
from pumice.engine.batches import Part, batch_of
from pumice.errors import RequestError
from reference_models import error
from tiny_drafts import EAGLES, MODELS, hidden_of
from tiny_models import IDS, N_CTX, TinyModel, uniform
from tiny_zoo import ZOO

EXPECTED = np.load(Path(__file__).parents[2] / "fixtures" / "drafts.npz")


def run(path: Path, tiny: TinyModel, backend: str, steps: list[int], graph: str) -> dict[str, np.ndarray]:
    """The graph's outputs for IDS and the hidden states before them, in so many tokens a step."""
    given = {"hidden": hidden_of(tiny)}
    if graph == FEATURES:
        n = 3 * tiny.metadata["target_hidden_size"]
        given = {"features": uniform(3, len(IDS) * n).reshape(len(IDS), n).astype(np.float32)}

    def steps_of(engine: Engine) -> Generator[None, None, dict[str, np.ndarray]]:
        place = engine.scheduler.take_place(must=True)
        assert place is not None
        engine.scheduler.hold(place, 0, len(IDS), must=True)
        found, first = [], 0
        for n in steps:
            batch = batch_of(engine.cache, [Part(place, IDS[first : first + n], first, range(n))])
            batch = replace(batch, inputs={key: rows[first : first + n] for key, rows in given.items()})
            found.append({key: value.copy() for key, value in engine.runner.outputs(batch, graph).items()})
            first += n
            yield
        engine.scheduler.give_back(place)
        return {key: np.concatenate([each[key] for each in found]) for key in found[0]}

    with pumice.load(path, backend=backend, kv_type="f32", n_ctx=N_CTX) as model:
        return model.engine.call(steps_of)


@pytest.mark.parametrize("name", MODELS)
def test_drafts_are_those_of_llama_cpp(tmp_path: Path, name: str) -> None:
    path = MODELS[name].write(tmp_path / "model.gguf")
    whole, parts = (run(path, MODELS[name], "numpy", steps, DRAFT) for steps in ([len(IDS)], [7, 1, len(IDS) - 8]))
    assert error(whole["logits"], EXPECTED[name]) < 1e-6
    assert error(parts["logits"], EXPECTED[name]) < 1e-6
    assert whole["hidden"].shape == (len(IDS), MODELS[name].metadata["embedding_length"])


@pytest.mark.parametrize("name", EAGLES)
def test_drafts_for_other_models(tmp_path: Path, name: str) -> None:
    """Its main graph gives both what llama.cpp gives and what the next draft takes; of features it makes the first."""
    tiny = EAGLES[name]
    path = tiny.write(tmp_path / "model.gguf")
    for steps in ([len(IDS)], [7, 1, len(IDS) - 8]):
        found = run(path, tiny, "numpy", steps, MAIN)
        known = EXPECTED[name] > -1e30
        assert error(found["logits"][known], EXPECTED[name][known]) < 1e-6
        assert (found["logits"][~known] < -1e29).all()
        assert found["hidden"].shape == (len(IDS), 64)
    assert run(path, tiny, "numpy", [len(IDS)], FEATURES)["hidden"].shape == (len(IDS), 64)


def test_a_draft_generates_nothing_by_itself(tmp_path: Path) -> None:
    with (
        pumice.load(EAGLES["eagle3"].write(tmp_path / "model.gguf"), backend="numpy") as model,
        pytest.raises(RequestError, match="does not generate text"),
    ):
        model.generate(IDS)


def test_a_layer_that_drafts_changes_no_logits(tmp_path: Path) -> None:
    logits = []
    for number, models in enumerate((ZOO, MODELS)):
        with pumice.load(models["glm4moe"].write(tmp_path / f"{number}.gguf"), backend="numpy", n_ctx=N_CTX) as model:
            logits.append(model.logits(IDS))
    np.testing.assert_array_equal(*logits)


@pytest.mark.parametrize("backend", ["cpu"])
def test_backends(tmp_path: Path, backend: str) -> None:
    path = MODELS["glm4moe"].write(tmp_path / "model.gguf")
    assert error(run(path, MODELS["glm4moe"], backend, [len(IDS)], DRAFT)["logits"], EXPECTED["glm4moe"]) < 1e-5
