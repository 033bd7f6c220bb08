"""Many clients for a while: mixed lengths, half of them cancelled, bursts beyond the queue. Nothing may be lost.

PUMICE_SOAK_SECONDS=3600 makes it an hour.
"""

import os
import random
import resource
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import pumice
from gguf_files import tiny_llama
from pumice.config import load_config
from pumice.engine.schedule import FairPolicy
from pumice.model import Model

SECONDS = float(os.environ.get("PUMICE_SOAK_SECONDS", "4"))
EXACT = {"backend": "numpy", "kv_type": "f32"}
N_CLIENTS = 16
BURST = 12


@dataclass
class Tally:
    """What the clients saw."""

    finished: int = 0
    cancelled: int = 0
    refused: int = 0
    timed_out: int = 0
    wrong: list[Any] = field(default_factory=list)


def cases() -> list[tuple[list[int], dict[str, Any]]]:
    """Requests that come again and again: short, long, with equal beginnings, greedy and random."""
    rng = random.Random(1)
    shared = [rng.randrange(3, 300) for _ in range(70)]
    made = []
    for seed in range(16):
        prompt = shared[: rng.choice([0, 33, 70])] + [rng.randrange(3, 300) for _ in range(rng.randrange(1, 60))]
        options: dict[str, Any] = {"max_tokens": rng.randrange(1, 40), "ignore_eos": True, "seed": seed}
        options |= rng.choice([{"temperature": 0.0}, {"temperature": 1.2, "top_k": 20}, {"repeat_penalty": 1.3}])
        made.append((prompt, options))
    return made


def client(model: Model, seed: int, expected: list[tuple[Any, list[int]]], until: float, tally: Tally) -> None:
    rng = random.Random(seed)
    while time.monotonic() < until:
        n = BURST if rng.random() < 0.1 else 1
        streams = []
        for _ in range(n):
            (prompt, options), tokens = rng.choice(expected)
            extra = {"priority": rng.choice([0, 0, 0, 1]), "timeout": rng.choice([None, None, None, 0.01])}
            try:
                streams.append((model.stream(prompt, **options, **extra), tokens))
            except pumice.QueueFullError:
                tally.refused += 1
                time.sleep(0.01)
        for stream, tokens in streams:
            if rng.random() < 0.5:
                for _ in zip(range(rng.randrange(len(tokens) + 1)), stream, strict=False):
                    pass
                if rng.random() < 0.5:
                    stream.close()
                tally.cancelled += 1
                continue
            completion = stream.completion()
            if completion.finish_reason == "timeout":
                tally.timed_out += 1
                tokens = tokens[: len(completion.tokens)]
            if completion.tokens == tokens:
                tally.finished += 1
            else:
                tally.wrong.append((completion, tokens))


def test_many_clients_for_a_while(tmp_path):
    path = tiny_llama(tmp_path / "tiny.gguf")
    with pumice.load(path, **EXACT) as model:
        expected = [((prompt, options), model.generate(prompt, **options).tokens) for prompt, options in cases()]
    settings = load_config({**EXACT, "n_ctx": 512, "n_batch": 64, "n_parallel": 6, "max_queue": 12})
    with Model(path, settings, policy=FairPolicy(max_delay=0.02, quantum=0.1)) as model:
        tally, until = Tally(), time.monotonic() + SECONDS
        threads = [
            threading.Thread(target=client, args=(model, seed, expected, until, tally)) for seed in range(N_CLIENTS)
        ]
        for thread in threads:
            thread.start()
        time.sleep(SECONDS / 2)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for thread in threads:
            thread.join(SECONDS + 30)
            assert not thread.is_alive()
        deadline = time.monotonic() + 10
        while (now := model.snapshot()).n_running + now.n_waiting and time.monotonic() < deadline:
            time.sleep(0.01)
        assert (now.n_running, now.n_waiting, now.n_slots_free) == (0, 0, 6)
        assert now.n_blocks_free == now.n_blocks
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < memory + 64 * 1024, "KiB"
    assert tally.wrong == []
    assert min(tally.finished, tally.cancelled, tally.refused, tally.timed_out) > 0, tally
