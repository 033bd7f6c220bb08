"""Measure throughput over simulated machines: Ray nodes on this one, and a backend whose steps wait like a GPU's.

    python bench/ray_nodes.py

A step waits without computing, and its logits are noise. The remaining cost is shared by all machines: this process,
which routes requests and receives tokens, and Ray.
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
from pumice.plugin import hookimpl
from pumice.plugin.unstable import Backend, ModelSpec, Program, Replicas, Step, concrete
from pumice_ray.deployment import replicas_of
from pumice_ray.serve_link import ServeLink

STREAMS = 16  # streams per replica
NODE = {"num_cpus": 1, "object_store_memory": 100 << 20}


class Waiting:
    """A plugin with the backend ``waiting``; ``seconds``: duration of a step."""

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
    """Load a model on ``count`` replicas behind Ray Serve."""
    spec = ModelSpec(["model"], path, {**options(), "plugins": [Waiting(seconds)]})
    config = {name: value for name, value in options().items() if name != "backend"}  # configuration of this process
    handle = serve.run(replicas_of(spec, Replicas(n, n, n_cpus=1)), name="nodes", route_prefix=None)
    with pumice.load_linked(path, lambda receive, _: ServeLink(handle, receive, lambda: None), **config) as model:
        yield model
    serve.delete("nodes")


def rate(model: Any, n_streams: int, n_tokens: int) -> float:
    """Return total tokens/s of all streams."""
    began = time.perf_counter()
    done = model.generate_many(["Once upon a time"] * n_streams, max_tokens=n_tokens, ignore_eos=True, temperature=0.0)
    return sum(len(completion.tokens) for completion in done) / (time.perf_counter() - began)


def processor_seconds() -> float:
    """Return the CPU seconds of this process and its descendants."""
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
    """Return the number of processors in use when idle."""
    before, began = processor_seconds(), time.perf_counter()
    time.sleep(seconds)
    return (processor_seconds() - before) / (time.perf_counter() - began)


def measure(model: Any, n_streams: int, n_tokens: int, idle: float) -> tuple[float, float]:
    """Return tokens/s, and microseconds of CPU time per token in excess of the idle load."""
    before, began = processor_seconds(), time.perf_counter()
    throughput = rate(model, n_streams, n_tokens)
    used = processor_seconds() - before - idle * (time.perf_counter() - began)
    return throughput, 1e6 * used / (n_tokens * n_streams)


def nodes(path: str, counts: list[int], seconds: float) -> None:
    print(f"a step takes {seconds * 1000:.0f} ms: at most {STREAMS / seconds:,.0f} tokens/s per machine\n")
    print("| machines | tokens/s | fraction of the maximum | CPU, us per token |\n| --- | --- | --- | --- |")
    for n in counts:
        with served(path, n, seconds) as model:
            rate(model, STREAMS * n, 4)
            idle = at_rest()
            throughput, spent = measure(model, STREAMS * n, 100, idle)
            print(f"| {n} | {throughput:,.0f} | {throughput / (n * STREAMS / seconds):.2f} | {spent:.0f} |", flush=True)


def cost(path: str, seconds: float, rounds: int) -> None:
    rates: dict[str, list[float]] = {"here": [], "Serve": []}
    spent: dict[str, list[float]] = {"here": [], "Serve": []}
    with (
        pumice.load(path, plugins=[Waiting(seconds)], **options()) as local,
        served(path, 1, seconds) as far,
    ):
        rate(far, STREAMS, 10)
        idle = at_rest()
        for _ in range(rounds + 1):
            for name, model in (("here", local), ("Serve", far)):
                throughput, used = measure(model, STREAMS, 100, idle)
                rates[name].append(throughput)
                spent[name].append(used)
    print(f"idle load: {idle:.2f} processors")
    print(f"\na step takes {seconds * 1000:.1f} ms\n\n| engine | tokens/s | CPU, us per token |\n| --- | --- | --- |")
    for name in rates:
        print(f"| {name} | {statistics.median(rates[name][1:]):,.0f} | {statistics.median(spent[name][1:]):.0f} |")
    ratio = statistics.median(far / local for local, far in zip(rates["here"][1:], rates["Serve"][1:], strict=True))
    print(f"relative to this process: {ratio:.3f}")


def stages(path: str, counts: list[int], seconds: float) -> None:
    """Measure stages that together wait ``seconds`` per step of all streams, less for fewer tokens."""
    print(f"\nall stages of a step of {STREAMS} tokens take {seconds * 1000:.0f} ms\n")
    print(f"| stages | tokens/s, one stream | {STREAMS} streams |\n| --- | --- | --- |")
    for n in counts:
        stages_options = {"model": path, "count": n, "num_cpus": 1, "arguments": {"backend": "cpu", "n_ctx": 4096}}
        loaded = {**options(), "backend": "stages", "config": {"stages": stages_options, "cpu": {"threads": 1}}}
        with pumice.load(path, **loaded) as model:
            named = [actor for actor in ray.util.list_named_actors() if actor.startswith("pumice-stage-")]
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
    parser = argparse.ArgumentParser(description="Measure throughput over simulated machines.")
    parser.add_argument("--step", type=float, default=0.1, help="seconds per step in the table of machines")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["nodes", "cost", "stages"])
    arguments = parser.parse_args()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    path = str(pumice.demo_model_path())
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR", namespace="pumice")
        serve.start(proxy_location="Disabled", logging_config={"log_level": "ERROR"})
        if arguments.only in (None, "cost"):
            cost(path, 0.0064, arguments.rounds)
        for _ in range(3):
            cluster.add_node(**NODE)
        if arguments.only in (None, "stages"):
            stages(path, [1, 2, 4], arguments.step)
        for _ in range(4 if arguments.only in (None, "nodes") else 0):
            cluster.add_node(**NODE)
        if arguments.only in (None, "nodes"):
            nodes(path, [1, 2, 4, 8], arguments.step)
    finally:
        serve.shutdown()
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
