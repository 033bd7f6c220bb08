"""A model whose engine is an actor: the same text, the same refusals, and an actor's death is an error."""

import threading

import pytest

import pumice
import pumice_ray
from waiting import wait_until

pytestmark = pytest.mark.ray

EXACT = {"backend": "numpy", "kv_type": "f32"}
ENDLESS = {"max_tokens": None, "ignore_eos": True, "context_shift": True}


@pytest.fixture(scope="module")
def model(cluster, path):
    with pumice_ray.load(path, num_cpus=0, n_parallel=16, **EXACT) as model:
        yield model


def test_text_facts_and_refusals_are_those_of_this_process(path, model):
    with pumice.load(path, n_parallel=16, **EXACT) as here:
        assert here.facts == model.facts
        options = {"temperature": 0.0, "max_tokens": 20, "logprobs": 2, "n": 2}
        expected, found = here.generate("ab", **options), model.generate("ab", **options)
        assert [(each.text, each.tokens, each.logprobs) for each in found] == [
            (each.text, each.tokens, each.logprobs) for each in expected
        ]
        assert (here.embed(["ab", "b"]) == model.embed(["ab", "b"])).all()
    with pytest.raises(pumice.PromptTooLongError, match="the prompt has 999 tokens"):
        model.generate([5] * 999)


def test_closing_a_stream_ends_its_sequence(model):
    with model.stream("a", **ENDLESS) as stream:
        next(stream)
        assert model.engine.snapshot().n_running == 1
    wait_until(lambda: model.engine.snapshot().n_running == 0)


def test_an_actor_that_dies_fails_its_streams_and_gives_its_room_back(cluster, path):
    import ray

    def free() -> float:
        return ray.available_resources().get("CPU", 0)

    whole = ray.cluster_resources()["CPU"]
    wait_until(lambda: free() == whole)  # what others had is back
    with pumice_ray.load(path, num_cpus=1, **EXACT) as model:
        wait_until(lambda: free() == whole - 1)
        stream = model.stream("a", **ENDLESS)
        next(stream)
        threading.Timer(0.2, ray.kill, [model.engine.link.actor]).start()
        with pytest.raises(pumice.EngineDiedError, match="the engine's actor died"):
            stream.completion()
        with pytest.raises(pumice.EngineDiedError):
            model.generate("a")
        assert isinstance(model.engine.error, pumice.EngineDiedError)
    wait_until(lambda: free() == whole)
    with pytest.raises(pumice.ModelClosedError):
        model.generate("a")


def test_room_is_waited_for_as_long_as_was_said(cluster, path):
    with pytest.raises(pumice.PumiceError, match=r"no room .*: requested 1 x 64 CPU, .*; gave up after 0.2 seconds"):
        pumice_ray.load(path, num_cpus=64, wait_seconds=0.2)
    with pumice_ray.load(path, num_cpus=0.5, wait_seconds=60, **EXACT) as model:
        assert model.generate("a", max_tokens=1).tokens


def test_a_model_that_cannot_be_loaded(cluster, tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    with pytest.raises(pumice.GGUFError):
        pumice_ray.load(str(tmp_path / "bad.gguf"), num_cpus=0)
    with pytest.raises(pumice.PumiceError, match="'nosuch'"):
        pumice_ray.load(num_cpus=0, backend="nosuch")
