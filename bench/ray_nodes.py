"""Throughput over simulated machines: nodes of Ray on this one, and a backend whose steps wait as long as a GPU's.

    python bench/ray_nodes.py

A step waits, and computes nothing: the logits are noise. What is left is what the machines have in common: this
process, which routes requests and hears tokens, and Ray.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import time
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray import serve
from ray.cluster_utils import Cluster

import pumice
from pumice.plugin import Backend, Program, Replicas, Step, concrete, hookimpl
from pumice_ray.deployment import replicas_of
from pumice_ray.serve_link import ServeLink
from pumice_server.entry import Spec

STREAMS = 16  # of a replica
NODE = {"num_cpus": 1, "object_store_memory": 100 << 20}


class Waiting:
    """A plugin with the backend ``waiting``; ``seconds`` of a step."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    @hookimpl
    def pumice_register_backends(self, register: Any) -> None:
        seconds = self.seconds

        class WaitingProgram(Program):
            def __init__(self, segment: Any) -> None:
                self._outputs = segment.outputs
                self._noise = np.random.default_rng(0)

            def run(self, step: Step) -> Mapping[str, Any]:
                time.sleep(seconds)
                shapes = {tensor.name: concrete(tensor.shape, step.batch.sizes) for tensor in self._outputs}
                return {name: self._noise.random(shape, np.float32) for name, shape in shapes.items()}

            @property
            def memory(self) -> dict[str, int]:
                return {}

        class WaitingBackend(Backend):
            def supports(self, node: Any, limits: Any) -> bool:
                return True

            def compile(self, segment: Any, plan: Any, limits: Any) -> Program:
                return WaitingProgram(segment)

        register("waiting", WaitingBackend)


def options() -> dict[str, Any]:
    return {"backend": "waiting", "n_parallel": STREAMS, "n_ctx": 4096, "config": {"max_queue": -1, "n_batch": 512}}


@contextmanager
def served(path: str, n: int, seconds: float) -> Any:
    """A model on so many replicas behind Ray Serve."""
    spec = Spec(["model"], path, {**options(), "plugins": [Waiting(seconds)]})
    config = {name: value for name, value in options().items() if name != "backend"}  # that of this end
    handle = serve.run(replicas_of(spec, Replicas(n, n, n_cpus=1)), name="nodes", route_prefix=None)
    with pumice.load_linked(path, lambda receive, _: ServeLink(handle, receive, lambda: None), **config) as model:
        yield model
    serve.delete("nodes")


def rate(model: Any, n_streams: int, n_tokens: int) -> float:
    """Tokens/s of all streams."""
    began = time.perf_counter()
    done = model.generate_many(["Once upon a time"] * n_streams, max_tokens=n_tokens, ignore_eos=True, temperature=0.0)
    return sum(len(each.tokens) for each in done) / (time.perf_counter() - began)


def processor_seconds() -> float:
    """Of this process and all that it started."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            number = int(path.parent.name)
            parents[number], ticks[number] = int(fields[1]), int(fields[11]) + int(fields[12])
    mine = {os.getpid()}
    while more := {number for number, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(ticks.get(number, 0) for number in mine) / os.sysconf("SC_CLK_TCK")


def at_rest(seconds: float = 5.0) -> float:
    """Processors that all of it takes when nothing is asked."""
    before, began = processor_seconds(), time.perf_counter()
    time.sleep(seconds)
    return (processor_seconds() - before) / (time.perf_counter() - began)


def measure(model: Any, n_streams: int, n_tokens: int, idle: float) -> tuple[float, float]:
    """Tokens/s, and the processor's microseconds a token beyond what all of it takes at rest."""
    before, began = processor_seconds(), time.perf_counter()
    found = rate(model, n_streams, n_tokens)
    used = processor_seconds() - before - idle * (time.perf_counter() - began)
    return found, 1e6 * used / (n_tokens * n_streams)


def nodes(path: str, counts: list[int], seconds: float) -> None:
    print(f"a step takes {seconds * 1000:.0f} ms: at most {STREAMS / seconds:,.0f} tokens/s of a machine\n")
    print("| machines | tokens/s | of the most | processor, us a token |\n| --- | --- | --- | --- |")
    for n in counts:
        with served(path, n, seconds) as model:
            rate(model, STREAMS * n, 4)
            idle = at_rest()
            found, spent = measure(model, STREAMS * n, 100, idle)
            print(f"| {n} | {found:,.0f} | {found / (n * STREAMS / seconds):.2f} | {spent:.0f} |", flush=True)


def cost(path: str, seconds: float, rounds: int) -> None:
    rates: dict[str, list[float]] = {"here": [], "Serve": []}
    spent: dict[str, list[float]] = {"here": [], "Serve": []}
    with (
        pumice.load(path, plugins=[Waiting(seconds)], **options()) as here,
        served(path, 1, seconds) as far,
    ):
        rate(far, STREAMS, 10)
        idle = at_rest()
        for _ in range(rounds + 1):
            for name, model in (("here", here), ("Serve", far)):
                found, used = measure(model, STREAMS, 100, idle)
                rates[name].append(found)
                spent[name].append(used)
    print(f"at rest all of it takes {idle:.2f} processors")
    print(
        f"\na step takes {seconds * 1000:.1f} ms\n\n| engine | tokens/s | processor, us a token |\n| --- | --- | --- |"
    )
    for name in rates:
        print(f"| {name} | {statistics.median(rates[name][1:]):,.0f} | {statistics.median(spent[name][1:]):.0f} |")
    ratio = statistics.median(far / here for here, far in zip(rates["here"][1:], rates["Serve"][1:], strict=True))
    print(f"beside this process: {ratio:.3f}")


def stages(path: str, counts: list[int], seconds: float) -> None:
    """All stages together wait so long for a token of each stream, for fewer tokens less."""
    print(f"\nall stages of a step of {STREAMS} tokens take {seconds * 1000:.0f} ms\n")
    print(f"| stages | tokens/s, one stream | {STREAMS} streams |\n| --- | --- | --- |")
    for n in counts:
        given = {"model": path, "count": n, "num_cpus": 1, "arguments": {"backend": "cpu", "n_ctx": 4096}}
        loaded = {**options(), "backend": "stages", "config": {"stages": given, "cpu": {"threads": 1}}}
        with pumice.load(path, **loaded) as model:
            named = [each for each in ray.util.list_named_actors() if each.startswith("pumice-stage-")]
            brake = _braked(seconds / n)
            ray.get([ray.get_actor(name).__ray_call__.remote(brake) for name in named])
            print(f"| {n} | {rate(model, 1, 20):,.1f} | {rate(model, STREAMS, 40):,.0f} |", flush=True)


def _braked(seconds: float) -> Any:
    def brake(actor: Any) -> None:
        run = actor._stage.run

        def slow(name: str, hop: int, batch: Any, arrays: Any) -> Any:
            time.sleep(seconds * len(batch.positions) / STREAMS)
            return run(name, hop, batch, arrays)

        actor._stage.run = slow

    return brake


def main() -> None:
    parser = argparse.ArgumentParser(description="Throughput over simulated machines.")
    parser.add_argument("--step", type=float, default=0.1, help="seconds, of the table of machines")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["nodes", "cost", "stages"])
    given = parser.parse_args()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    path = str(pumice.demo_model_path())
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR", namespace="pumice")
        serve.start(http_options={"location": "NoServer"}, logging_config={"log_level": "ERROR"})
        if given.only in (None, "cost"):
            cost(path, 0.0064, given.rounds)
        for _ in range(3):
            cluster.add_node(**NODE)
        if given.only in (None, "stages"):
            stages(path, [1, 2, 4], given.step)
        for _ in range(4 if given.only in (None, "nodes") else 0):
            cluster.add_node(**NODE)
        if given.only in (None, "nodes"):
            nodes(path, [1, 2, 4, 8], given.step)
    finally:
        serve.shutdown()
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
