"""Layers and models that draft tokens, against llama.cpp."""

from collections.abc import Generator, Mapping
from pathlib import Path

import numpy as np
import pytest

import pumice
from draft_steps import N, Step, after_hidden, block, logits_of, run, whole, write
from nightly import crossed
from places import taken
from pumice.architecture import DRAFT, FEATURES, MAIN
from pumice.engine import Engine
from pumice.engine.requests.batches import Part, batch_of
from reference_models import error
from tiny_drafts import BLOCKS, CHAINS, EAGLES, FOR_TARGETS, LATTICES, MODELS, features_of, hidden_of
from tiny_models import IDS, N_CTX

EXPECTED = np.load(Path(__file__).parents[2] / "fixtures" / "drafts.npz")
OF_BLOCKS = BLOCKS | CHAINS | LATTICES


@pytest.mark.parametrize("name", MODELS)
def test_drafts_are_those_of_llama_cpp(tmp_path: Path, name: str) -> None:
    path = MODELS[name].write(tmp_path / "model.gguf")
    for lengths in ([N], [7, 1, N - 8]):
        found = run(path, after_hidden(DRAFT, MODELS[name], lengths))
        assert error(whole(found, "logits"), EXPECTED[name]) < 1e-6
    assert whole(found, "hidden").shape == hidden_of(MODELS[name]).shape


@pytest.mark.parametrize("name", EAGLES)
def test_drafts_for_other_models(tmp_path: Path, name: str) -> None:
    """Its main graph gives both what llama.cpp gives and what the next draft takes; of features it makes the first."""
    tiny = EAGLES[name]
    path = tiny.write(tmp_path / "model.gguf")
    for lengths in ([N], [7, 1, N - 8]):
        found = run(path, after_hidden(MAIN, tiny, lengths))
        assert error(whole(found, "logits"), EXPECTED[name]) < 1e-6
        assert whole(found, "hidden").shape == (N, 64)
    (made,) = run(path, [Step(FEATURES, IDS, 0, {"features": features_of(tiny)})])
    assert made["hidden"].shape == (N, 64)


@pytest.mark.parametrize(("name", "backend"), crossed(list(OF_BLOCKS), ["numpy", "cpu"]))
def test_drafts_of_blocks(tmp_path: Path, name: str, backend: str) -> None:
    """A block sees the features of several steps, and its tokens see each other."""
    path = OF_BLOCKS[name].write(tmp_path / "model.gguf")
    for lengths in ([N - 8], [7, 1, N - 16]):
        *_, found = run(path, block(MAIN, OF_BLOCKS[name], lengths), backend)
        if f"{name}:lattice" in EXPECTED:
            k = OF_BLOCKS[name].metadata["selector_top_k"]
            assert_selected(found["logits"], EXPECTED[name], EXPECTED[f"{name}:lattice"], k)
            continue
        assert error(found["logits"], EXPECTED[name]) < 1e-6
        if f"{name}:confidence" in EXPECTED:
            first = 0 if OF_BLOCKS[name].metadata.get("sample_from_anchor", True) else 1  # which nobody asks for
            assert error(found["confidence"][first:], EXPECTED[f"{name}:confidence"][first:]) < 1e-6


def assert_selected(logits: np.ndarray, plain: np.ndarray, lattice: np.ndarray, k: int) -> None:
    """llama.cpp has k candidates and their scores after each one before in one row; the first row means nothing.

    From the second position on, candidates have the scores after the one that is best before them, others none.
    """
    before = 0
    for place in range(1, len(lattice)):
        candidates = lattice[place, :k].astype(int)
        assert set(candidates) == set(np.argsort(-plain[place], kind="stable")[:k])
        scores = lattice[place, k : k + k * k].reshape(k, k)[before]
        np.testing.assert_allclose(logits[place, candidates], scores, atol=1e-5)
        assert (np.delete(logits[place], candidates) < -1e4).all()
        before = int(scores.argmax())


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize("name", ["dspark", "dspark-behind-a-token", "dflash2"])
def test_blocks_of_several_sequences(tmp_path: Path, name: str, backend: str) -> None:
    """Side by side in a step they are what they are alone, also where one is shorter."""

    def steps_of(engine: Engine) -> Generator[None, None, list[Mapping[str, np.ndarray]]]:
        found = []
        with taken(engine, N, 2) as places:
            tails = [Part(places[0], IDS[-8:], 0, range(8)), Part(places[1], IDS[:5], 0, range(5))]
            for parts in ([tails[0]], [tails[1]], tails):
                outputs = engine.runner.outputs(batch_of(engine.cache, parts), MAIN)
                found.append({name: rows.copy() for name, rows in outputs.items()})
                yield
        return found

    path = OF_BLOCKS[name].write(tmp_path / "model.gguf")
    with pumice.load(path, backend=backend, kv_type="f32", n_ctx=N_CTX, n_parallel=2) as model:
        long, short, both = model.engine.thread.call(steps_of)
    for key in both:
        np.testing.assert_allclose(both[key], np.concatenate([long[key], short[key]]), atol=1e-4, err_msg=key)


@pytest.mark.parametrize(("name", "backend"), crossed(list(FOR_TARGETS), ["cpu", "numpy"]))
def test_drafts_that_read_their_target(tmp_path: Path, name: str, backend: str) -> None:
    """Its caches, or the weights at its two ends."""
    path, config = write(name, tmp_path)
    with pumice.load(path, backend=backend, kv_type="f32", n_ctx=N_CTX, config=config) as model:
        assert error(logits_of(name, model), EXPECTED[name]) < (1e-6 if backend == "numpy" else 1e-5)


def test_a_draft_of_compiled_kernels(tmp_path: Path) -> None:
    tiny = MODELS["glm4moe"]
    found = run(tiny.write(tmp_path / "model.gguf"), after_hidden(DRAFT, tiny, [N]), "cpu")
    assert error(whole(found, "logits"), EXPECTED["glm4moe"]) < 1e-5
