"""Replicas that come and go: as many as their queues need, others than before, a slow one; no request is lost."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import pumice
from gguf_files import tiny_llama
from pumice.api import load_linked
from pumice.plugin.unstable import ModelSpec, Replicas
from pumice.process.codec import decode_events
from waiting import PATIENCE, at_best, wait_until

pytestmark = pytest.mark.ray

BUSY = {"max_tokens": 60, "temperature": 0.0, "ignore_eos": True}


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    path = tiny_llama(tmp_path_factory.mktemp("ray") / "tiny.gguf")
    return ModelSpec(["tiny"], str(path), {"backend": "numpy", "n_parallel": 2, "kv_type": "f32"})


@contextmanager
def deployed(spec: ModelSpec, replicas: Replicas, name: str) -> Iterator[tuple[pumice.Model, Callable[..., Any]]]:
    """A model over a deployment, and what deploys another version of it."""
    from ray import serve

    from pumice_ray.deployment import ServeLink, replicas_of

    def deploy(spec: ModelSpec) -> Any:
        return serve.run(replicas_of(spec, replicas), name=name, route_prefix=None)

    serve.start(proxy_location="Disabled")
    handle = deploy(spec)
    try:
        with load_linked(
            spec.path, lambda receive, _: ServeLink(handle, receive, lambda: None), **spec.options
        ) as model:
            yield model, deploy
    finally:
        serve.delete(name)


class Asking:
    """Threads that ask one request after the other; ``texts`` and ``errors`` are what came of them."""

    def __init__(self, model: pumice.Model, n: int) -> None:
        self._model = model
        self._stop = threading.Event()
        self.texts: list[str] = []
        self.errors: list[Exception] = []
        self._threads = [threading.Thread(target=self._ask) for _ in range(n)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while not self._stop.is_set():
            try:
                self.texts.append(self._model.generate("a", **BUSY).text)
            except Exception as error:
                self.errors.append(error)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE)


def pids(model: pumice.Model) -> set[int]:
    return {each["pid"] for each in model.engine.link._handle.broadcast("describe").results(timeout_s=PATIENCE)}


def test_a_rolling_update_loses_no_request(cluster: Any, spec: ModelSpec) -> None:
    with deployed(spec, Replicas(2, 2, n_cpus=0.25), "rolling") as (model, deploy):
        before = pids(model)
        asking = Asking(model, 3)
        try:
            deploy(ModelSpec(["tiny"], spec.path, {**spec.options, "n_parallel": 3}))
            n = len(asking.texts)
            wait_until(lambda: len(asking.texts) > n + 3)
        finally:
            asking.stop()
        assert len(set(asking.texts)) == 1
        assert asking.errors == []
        assert not before & pids(model)


def test_there_are_as_many_replicas_as_queues_need(cluster: Any, spec: ModelSpec) -> None:
    from ray import serve

    scaling = {"upscale_delay_s": 0.5, "downscale_delay_s": 1.0, "metrics_interval_s": 0.2, "look_back_period_s": 1.0}
    deployment = serve.deployment

    def faster(*arguments: Any, autoscaling_config: dict[str, Any], **options: Any) -> Any:
        return deployment(*arguments, autoscaling_config={**autoscaling_config, **scaling}, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serve, "deployment", faster)
        with deployed(spec, Replicas(1, 2, n_cpus=0.25), "scaling") as (model, _):
            assert len(pids(model)) == 1
            asking = Asking(model, 8)
            try:
                wait_until(lambda: len(pids(model)) == 2)
            finally:
                asking.stop()
            assert asking.errors == []
            wait_until(lambda: len(pids(model)) == 1)
            assert model.generate("a", **BUSY).text == asking.texts[0]


def test_a_slow_machine_gets_fewer_requests(cluster: Any, spec: ModelSpec) -> None:
    with deployed(spec, Replicas(2, 2, n_cpus=0.25), "slow") as (model, _):
        slow = min(pids(model))
        done = threading.Event()

        def brake() -> None:
            while not done.is_set():
                os.kill(slow, signal.SIGSTOP)
                time.sleep(0.09)
                os.kill(slow, signal.SIGCONT)
                time.sleep(0.01)

        def steps() -> dict[int, int]:
            handle = model.engine.link._handle
            told = (handle.broadcast(each).results(timeout_s=PATIENCE) for each in ("describe", "snapshot"))
            return {each["pid"]: decode_events(data)[0].value.n_steps for each, data in zip(*told, strict=True)}

        def share() -> float:
            """Return the slow replica's share of the steps of the next seconds."""
            before = steps()
            asking = Asking(model, 6)
            time.sleep(4)
            asking.stop()
            assert asking.errors == []
            new = {pid: n - before[pid] for pid, n in steps().items()}
            return new[slow] / sum(new.values())

        braking = threading.Thread(target=brake)
        braking.start()
        try:
            assert at_best(share, 0.35) < 0.35
        finally:
            done.set()
            braking.join()
