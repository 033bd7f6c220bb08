"""Measure the cost of Ray per token, and the gain of routing by prefix, on this machine.

    python bench/ray_cost.py [MODEL]

One engine with 16 streams in this process, in a process of its own, in an actor (``pumice_ray.load``) and behind Ray
Serve, in turns, so that other load on the machine affects all alike; then conversations with several replicas behind
Ray Serve.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import ray

import pumice
import pumice_ray
from pumice.plugin.unstable import ModelSpec, Replicas

STREAMS = 16


def cost(path: str, rounds: int, n_tokens: int) -> None:
    from pumice_ray.deployment import load_replicas

    options: dict[str, Any] = {"n_parallel": STREAMS, "n_ctx": 4096, "config": {"cpu": {"threads": 1}}}
    ways: dict[str, Callable[[], pumice.Model]] = {
        "a thread of this process": lambda: pumice.load(path, **options),
        "a process": lambda: pumice.load_process(path, **options),
        "an actor": lambda: pumice_ray.load(path, num_cpus=0, **options),
        "Ray Serve": lambda: load_replicas(ModelSpec(["model"], path, options), Replicas(n_cpus=0), _call),
    }
    with ExitStack() as stack:
        models = {name: stack.enter_context(load()) for name, load in ways.items()}
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, model in models.items():
                began = time.perf_counter()
                done = model.generate_many(["Once upon a time"] * STREAMS, max_tokens=n_tokens, ignore_eos=True)
                rates[name].append(sum(len(rate.tokens) for rate in done) / (time.perf_counter() - began))
    reference_rates = rates["a thread of this process"]
    print(f"| {STREAMS} streams, engine in | tokens/s, median | relative to this process |")
    print("| --- | --- | --- |")
    for name, rates_of_engine in rates.items():
        ratio = statistics.median(rate / base for rate, base in zip(rates_of_engine, reference_rates, strict=True))
        print(f"| {name} | {statistics.median(rates_of_engine):,.0f} | {ratio:.2f} |", flush=True)


def prefixes(path: str, n_replicas: int, users: int, turns: int) -> None:
    from ray import serve

    from pumice_ray import deployment

    print("| routing | prompt tokens cached |")
    print("| --- | --- |")
    for by_prefix, name in ((True, "by prefix"), (False, "to the least busy replica")):
        spec = ModelSpec(["model"], path, {"n_parallel": 4, "config": {"cpu": {"threads": 1}}})
        handle = serve.run(
            deployment.replicas_of(spec, Replicas(n_replicas, n_replicas, n_cpus=0), by_prefix),
            name=f"prefixes-{by_prefix}",
            route_prefix=None,
        )
        link = deployment.ServeLink
        with pumice.load_linked(path, lambda receive, _: link(handle, receive, lambda: None), **spec.options) as model:  # noqa: B023
            print(f"| {name} | {asyncio.run(_talk(model, users, turns)):.0%} |", flush=True)
        serve.delete(f"prefixes-{by_prefix}")


async def _talk(model: pumice.Model, users: int, turns: int) -> float:
    """Return the fraction of prompt tokens found in caches, over concurrent conversations."""
    timings: list[Any] = []

    async def user(seed: int) -> None:
        chance = random.Random(seed)
        text = [chance.randrange(3, model.n_vocab) for _ in range(40)]
        for _ in range(turns):
            done = await model.agenerate(text, max_tokens=16, ignore_eos=True)
            timings.append(done.timings)
            text += [*done.tokens, *(chance.randrange(3, model.n_vocab) for _ in range(40))]
            await asyncio.sleep(chance.expovariate(2.0))

    await asyncio.gather(*map(user, range(users)))
    return sum(timing.prompt_cached for timing in timings) / sum(timing.prompt_tokens for timing in timings)


def _call(function: Callable[..., object], *arguments: object) -> None:
    function(*arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the cost of Ray on this machine.")
    parser.add_argument("model", nargs="?", default=str(pumice.demo_model_path()))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=200, help="tokens per stream")
    parser.add_argument("--replicas", type=int, default=4)
    options = parser.parse_args()
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        cost(options.model, options.rounds, options.tokens)
        prefixes(options.model, options.replicas, users=16, turns=5)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
