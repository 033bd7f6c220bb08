"""How long a context is: what was asked for, with a word where that is more than the model was trained for."""

import pytest

import pumice
from gguf_files import tiny_llama
from tiny_zoo import ZOO


@pytest.mark.parametrize(
    ("settings", "n_ctx", "n_warnings"),
    [({}, 256, 0), ({"n_ctx": 64}, 64, 0), ({"n_ctx": 4 * 256}, 1024, 0), ({"n_ctx": 1025}, 1025, 1)],
)
def test_a_context_beyond_the_training_is_named(tmp_path, caplog, settings, n_ctx, n_warnings):
    with pumice.load(tiny_llama(tmp_path / "tiny.gguf"), backend="numpy", **settings) as model:
        assert model.n_ctx == n_ctx
    said = [record.getMessage() for record in caplog.records if "trained for 256 positions" in record.getMessage()]
    assert len(said) == n_warnings


def test_learned_positions_bound_a_sequence_and_not_the_cache(tmp_path, caplog):
    with pumice.load(ZOO["gpt2"].write(tmp_path / "tiny.gguf"), backend="numpy", n_ctx=10**6, n_parallel=2) as model:
        trained = model.facts.n_ctx_train
        assert (model.n_ctx, model.facts.n_cache) == (trained, 2 * trained)
        assert model.generate([1], max_tokens=None, temperature=0).finish_reason == "context_full"
    assert f"a context of 1000000 tokens: the model has {trained} positions" in caplog.text
