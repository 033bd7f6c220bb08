"""Layers over machines: the same text as on one, bit for bit; a stage that dies is an error, and nothing hangs."""

import os
import signal
import threading

import pytest

import pumice
import pumice_ray
from pumice.plugin.unstable import Replicas
from waiting import wait_until

pytestmark = pytest.mark.ray

EXACT = {"backend": "cpu", "config": {"cpu": {"threads": 1, "batch_invariant": True}}}
ENDLESS = {"max_tokens": None, "ignore_eos": True, "context_shift": True}
GREEDY = {"temperature": 0.0, "max_tokens": 40, "ignore_eos": True}
QUIET = {"temperature": 0.0, "max_tokens": 4}
PROMPTS = ["Once upon a time", "The fox", "A small house stood near the river, and", "One day"]


def own(path: str, count: int, **arguments) -> pumice.Model:
    """A model whose engine is in this process, and whose layers are not."""
    given = {"model": path, "count": count, "num_cpus": 0.25, "arguments": arguments}
    return pumice.load(path, **{**arguments, "backend": "stages", "config": {"stages": given}})


def stages() -> list:
    """The actors, the first stage first."""
    import ray

    named = sorted(each["name"] for each in ray.util.list_named_actors(all_namespaces=True))
    return [ray.get_actor(name) for name in named if name.startswith("pumice-stage-")]


@pytest.mark.ray_essential
def test_the_logits_are_those_of_one_machine_and_sequences_are_on_their_way_together(cluster, node):
    import ray

    node()
    path = str(pumice.demo_model_path())
    with pumice.load(path, n_parallel=4, **EXACT) as here, own(path, 2, n_parallel=4, **EXACT) as model:
        where = [stage.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id()) for stage in stages()]
        assert len(set(ray.get(where))) == 2
        tokens = here.tokenizer.tokenize(PROMPTS[2] * 40)
        assert (here.logits(tokens) == model.logits(tokens)).all()
        assert model.memory["kv_cache"] == here.memory["kv_cache"]
        assert [each.text for each in model.generate_many(PROMPTS, **GREEDY)] == [
            each.text for each in here.generate_many(PROMPTS, **GREEDY)
        ]
        assert model.engine.snapshot().n_steps > 1.5 * GREEDY["max_tokens"]  # two batches of two, not one of four


def test_a_stage_that_dies_ends_what_runs_and_gives_its_room_back(cluster, path):
    import ray

    def all_free() -> bool:
        return ray.available_resources().get("CPU", 0) == ray.cluster_resources()["CPU"]

    wait_until(all_free)
    with pumice_ray.load(path, num_cpus=0.5, stages=2, backend="numpy", n_parallel=2) as model:
        wait_until(lambda: not all_free())
        streams = [model.stream("a", **ENDLESS) for _ in range(2)]
        for stream in streams:
            next(stream)
        pid = ray.get(stages()[1].describe.remote())["pid"]
        threading.Timer(0.2, os.kill, [pid, signal.SIGKILL]).start()
        for stream in streams:
            with pytest.raises(pumice.EngineDiedError, match="stage 2 of 2 died"):
                stream.completion()
        with pytest.raises(pumice.EngineDiedError, match="load the model again"):
            model.generate("a")
    wait_until(all_free)
    with pumice_ray.load(path, num_cpus=0.5, stages=2, backend="numpy") as again:
        assert again.generate("a", max_tokens=2).tokens


def test_a_replica_whose_stage_dies_says_so_and_is_started_again(cluster, path):
    import ray

    from pumice.plugin.unstable import ModelSpec
    from pumice_ray.deployment import load_replicas

    spec = ModelSpec(["tiny"], path, {"backend": "numpy"})
    model = load_replicas(spec, Replicas(n_cpus=0.25, n_stages=2), lambda function, *arguments: function(*arguments))
    with model:
        expected = model.generate("a", **QUIET).text
        before = stages()
        described = ray.get([stage.describe.remote() for stage in before])
        assert [each["model"].partition(" ")[2] for each in described] == ["(stage 1 of 2)", "(stage 2 of 2)"]
        stream = model.stream("a", **ENDLESS)
        next(stream)
        os.kill(described[0]["pid"], signal.SIGKILL)
        with pytest.raises(pumice.EngineDiedError, match="stage 1 of 2 died"):
            stream.completion()

        def answers() -> bool:
            try:
                return model.generate("a", **QUIET).text == expected
            except pumice.EngineDiedError:
                return False

        wait_until(answers)
        assert not {stage._actor_id for stage in stages()} & {stage._actor_id for stage in before}
