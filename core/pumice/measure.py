"""Measuring a model: how fast it reads prompts and generates, alone and with many sequences at once."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Generator, Sequence

import numpy as np

from pumice.backend import KernelTime
from pumice.engine import Engine, Request, Timings, lone
from pumice.errors import RequestError
from pumice.model import Model
from pumice.stream import Stream

GREEDY = {"temperature": 0.0}


def prompt_seconds(model: Model, n_tokens: int, depth: int = 0) -> float:
    """Seconds to read a prompt of ``n_tokens`` random tokens after ``depth`` others, which are not timed."""
    ids = random_tokens(model, depth + n_tokens)
    return model.engine.call(lambda engine: lone.measure(engine, ids, depth))


def generation_seconds(model: Model, n_tokens: int, depth: int = 0) -> float:
    """Seconds to generate ``n_tokens`` after ``depth`` random ones, which are not timed.

    The most probable token is chosen, wherever the text might end. Without a depth a token is there to begin with.
    """
    ids = random_tokens(model, depth + n_tokens)[: max(depth, 1)]
    n_untimed = 1 if depth else 0  # the prompt's last step gives the first token
    request = Request(ids, n_untimed + n_tokens, GREEDY, end_tokens=frozenset())
    with Stream.open(model.client, request)[0] as stream:
        timings = stream.completion().timings
    return timings.generation_seconds + (0.0 if n_untimed else timings.prompt_seconds)


def parallel_seconds(model: Model, n_prompt: int, n_generate: int, n_parallel: int) -> tuple[float, float]:
    """Seconds for ``n_parallel`` sequences at once, as llama-batched-bench counts: to read prompts, then to generate.

    Each has ``n_prompt`` random tokens of its own. They are sampled as the model is configured.
    """
    salt = uuid.uuid4().hex  # nothing is found in the cache but what the first of the two leaves for the second
    ids = [random_tokens(model, n_prompt + 1, seed) for seed in range(n_parallel)]

    def run(n_read: int, n_tokens: int) -> list[Timings]:
        requests = [Request(each[:n_read], n_tokens, end_tokens=frozenset(), cache_salt=salt) for each in ids]
        return _at_once(model, requests)

    reading = max(timings.prompt_seconds for timings in run(n_prompt, 1))
    # With a token that is not in the cache, all begin to generate with the same step.
    generating = max(timings.generation_seconds for timings in run(n_prompt + 1, n_generate + 1))
    return reading, generating


def kernel_times(model: Model) -> list[KernelTime]:
    """Times of the kernels of the last step, by name, the longest first; empty where no backend can tell."""
    return model.engine.call(lambda engine: engine.profile())


def random_tokens(model: Model, n: int, seed: int = 0) -> list[int]:
    if n > model.n_ctx:
        raise RequestError(f"{n} tokens do not fit the context of {model.n_ctx}: raise n_ctx")
    ids: list[int] = np.random.default_rng(seed).integers(0, model.n_vocab, n).tolist()
    return ids


def _at_once(model: Model, requests: Sequence[Request]) -> list[Timings]:
    """Generate for all of them; the engine sees none before it could see all."""
    holding, prepared = threading.Event(), threading.Event()

    def hold(engine: Engine) -> Generator[None, None, None]:
        holding.set()
        prepared.wait()
        yield

    threading.Thread(target=model.engine.call, args=[hold], daemon=True).start()
    holding.wait()
    try:
        streams = [Stream.open(model.client, request)[0] for request in requests]
    finally:
        prepared.set()
    return [stream.completion().timings for stream in streams]
