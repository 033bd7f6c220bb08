"""Compare replicas and stages on several GPUs of this machine, each GPU a Ray node, with one engine in this process.

    python bench/ray_gpus.py MODEL [--gpus 2]

With ``--gpus 0 --backend cpu`` each node has one CPU thread, as a functional check.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from collections.abc import Callable
from typing import Any

import ray
from ray import serve
from ray.cluster_utils import Cluster

import pumice
import pumice_ray
from pumice.plugin.unstable import ModelSpec, Replicas

GREEDY = {"temperature": 0.0, "ignore_eos": True}
PROMPT = "Once upon a time there was a little"


def start(n_nodes: int, gpus: bool) -> Cluster:
    """Start a head without resources, and nodes with a GPU, or a CPU, each."""
    room: dict[str, Any] = {"object_store_memory": 1 << 30, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={**room, "num_cpus": 0, "num_gpus": 0})
    for number in range(n_nodes):
        mine = {"num_gpus": 1, "env_vars": {"CUDA_VISIBLE_DEVICES": str(number)}} if gpus else {"num_gpus": 0}
        cluster.add_node(num_cpus=8 if gpus else 1, **mine, **room)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR", namespace="pumice")
    return cluster


def rate(model: Any, n_streams: int, n_tokens: int) -> float:
    """Return total tokens/s of ``n_streams`` streams with different prompts."""
    prompts = [f"{i}: {PROMPT}" for i in range(n_streams)]
    began = time.perf_counter()
    done = model.generate_many(prompts, max_tokens=n_tokens, **GREEDY)
    return sum(len(completion.tokens) for completion in done) / (time.perf_counter() - began)


def row(name: str, model: Any, streams: list[int], n_tokens: int) -> None:
    """Print the best of three runs, since the first one initializes."""
    rates = [max(rate(model, n, n_tokens) for _ in range(3)) for n in streams]
    print(f"| {name} | " + " | ".join(f"{tokens_per_second:,.0f}" for tokens_per_second in rates) + " |", flush=True)


def memory_used() -> str:
    """Return the used memory of each GPU, as reported by the driver."""
    ask = ["nvidia-smi", "--query-gpu=index,memory.used", "--format=csv,noheader"]
    try:
        return "; ".join(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split("\n")).strip("; ")
    except (OSError, subprocess.CalledProcessError):
        return "not known"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare replicas and stages on several GPUs of this machine.")
    parser.add_argument("model", nargs="?", default=str(pumice.demo_model_path()))
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--backend", default="vulkan")
    parser.add_argument("--tokens", type=int, default=256, help="tokens per stream")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 16, 64], help="streams per replica")
    cli = parser.parse_args()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    n, gpus = cli.gpus or 2, cli.gpus > 0
    resources = {"n_cpus": 1.0, "n_gpus": 1.0 if gpus else 0.0}
    most = max(cli.streams)
    options: dict[str, Any] = {"backend": cli.backend, "n_parallel": most}
    options["n_ctx"] = most * (cli.tokens + 64)
    options["config"] = {"max_queue": -1, **({} if gpus else {"cpu": {"threads": 1}})}
    call: Callable[..., object] = lambda function, *arguments: function(*arguments)  # noqa: E731
    spec = ModelSpec(["model"], cli.model, options)
    print(f"| tokens/s, streams a replica | {' | '.join(map(str, cli.streams))} |")
    print(f"| --- |{' --- |' * len(cli.streams)}")
    with pumice.load(cli.model, **options) as local:
        row("an engine in this process", local, cli.streams, cli.tokens)
        texts = [resources.text for resources in local.generate_many([PROMPT, "The"], max_tokens=64, **GREEDY)]
    cluster = start(n, gpus)
    try:
        from pumice_ray.deployment import load_replicas

        for count in (1, n):
            with load_replicas(spec, Replicas(count, count, **resources), call) as model:
                row(f"{count} replicas", model, [count * resources for resources in cli.streams], cli.tokens)
                used = memory_used()
        with pumice_ray.load(cli.model, stages=n, num_cpus=1, num_gpus=resources["n_gpus"], **options) as model:
            row(f"{n} stages", model, cli.streams, cli.tokens)
            texts_of_stages = [
                resources.text for resources in model.generate_many([PROMPT, "The"], max_tokens=64, **GREEDY)
            ]
            staged = memory_used()
        print(f"\nmemory used with {n} replicas: {used}; with {n} stages: {staged}")
        print(f"{n} stages return the same text as one engine: {texts_of_stages == texts}")
    finally:
        serve.shutdown()
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
