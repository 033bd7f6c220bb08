"""Measure the speed of a model: prompt processing and generation, with one sequence or many."""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace

import numpy as np

from pumice.backend import KernelTime
from pumice.engine import Engine, Request, Timings
from pumice.engine.messages import Event, Failed, Finished, Output
from pumice.engine.messages import Progress as Read
from pumice.engine.requests.reading import MeasuredSteps, ReadRequest
from pumice.errors import RequestError
from pumice.local_engine import local_engine
from pumice.model import Model

GREEDY = {"temperature": 0.0}
TICK = 0.1  # seconds between two checks of progress

TokenProgress = Callable[[int, int], None]
"""Called with the number of processed tokens and the total number."""


def settle(model: Model) -> None:
    """Wait until nothing is compiled or prepared beside steps, which would be slower meanwhile."""

    def wait(engine: Engine) -> Generator[None, None, None]:
        engine.runner.placed.wait_until_settled()
        yield

    local_engine(model).thread.call(wait)


def prompt_seconds(model: Model, n_tokens: int, depth: int = 0, progress: TokenProgress | None = None) -> float:
    """Return the seconds to read a prompt of ``n_tokens`` random tokens after an untimed prefix of ``depth`` tokens."""
    ids = random_tokens(model, depth + n_tokens)
    ends = [depth - 1, depth + n_tokens - 1] if depth else [n_tokens - 1]

    def steps(request: ReadRequest[float]) -> None:
        MeasuredSteps(request, ends, tokens=ids, depth=depth, progress=progress)

    return local_engine(model).thread.read(steps)[0]


def generation_seconds(model: Model, n_tokens: int, depth: int = 0, progress: TokenProgress | None = None) -> float:
    """Return the seconds to generate ``n_tokens`` greedily after an untimed random prefix of ``depth`` tokens.

    End tokens are ignored. With a depth of 0 the prefix is a single token.
    """
    ids = random_tokens(model, depth + n_tokens)[: max(depth, 1)]
    n_untimed = 1 if depth else 0  # the prompt's last step yields the first token
    request = Request(ids, n_untimed + n_tokens, GREEDY, end_tokens=frozenset(), speculate="off")
    (timings,) = _run(model, [request], progress)
    return timings.generation_seconds + (0.0 if n_untimed else timings.prompt_seconds)


def parallel_seconds(
    model: Model, n_prompt: int, n_generate: int, n_parallel: int, progress: TokenProgress | None = None
) -> tuple[float, float]:
    """Return the seconds for ``n_parallel`` sequences to read prompts, and to generate, as in llama-batched-bench.

    Each has ``n_prompt`` different random tokens. Sampling follows the model's configuration.
    """
    salt = uuid.uuid4().hex  # only the second run finds cached tokens, those of the first one
    ids = [random_tokens(model, n_prompt + 1, seed) for seed in range(n_parallel)]
    n_first = n_parallel * (n_prompt + 1)
    n_all = n_first + n_parallel * (n_prompt + n_generate + 2)

    def run(n_read: int, n_tokens: int, n_before: int) -> list[Timings]:
        plain = Request([], n_tokens, end_tokens=frozenset(), cache_salt=salt, speculate="off")
        requests = [replace(plain, prompt=row[:n_read]) for row in ids]
        return _run(model, requests, progress and (lambda done, _: progress(n_before + done, n_all)))

    reading = max(timings.prompt_seconds for timings in run(n_prompt, 1, 0))
    # One token is not cached, so that all sequences begin to generate in the same step.
    generating = max(timings.generation_seconds for timings in run(n_prompt + 1, n_generate + 1, n_first))
    return reading, generating


def kernel_times(model: Model) -> list[KernelTime]:
    """Return the times of the last step's kernels by name, longest first; empty if they are not measured."""

    def turns(engine: Engine) -> Generator[None, None, list[KernelTime]]:
        yield
        engine.settle()
        with engine.failing_lost():
            return engine.runner.profile()

    return local_engine(model).thread.call(turns)


def random_tokens(model: Model, n: int, seed: int = 0) -> list[int]:
    """Return ``n`` random tokens. Raises RequestError if they exceed the context, or the model reads no text alone."""
    local_engine(model).check_logits()
    if n > model.n_ctx:
        raise RequestError(f"{n} tokens exceed the context of {model.n_ctx}; increase n_ctx")
    ids: list[int] = np.random.default_rng(seed).integers(0, model.n_vocab, n).tolist()
    return ids


def _run(model: Model, requests: Sequence[Request], progress: TokenProgress | None = None) -> list[Timings]:
    """Generate for all requests, which are submitted to the engine at once.

    This thread does not wake up for single tokens, since it would compete with the engine's for Python's lock.
    """
    done, ended = [0] * len(requests), queue.SimpleQueue[Finished | Failed]()

    def listener(i: int) -> Callable[[Event], None]:
        def listen(event: Event) -> None:
            if isinstance(event, Read):
                done[i] = event.n_read
            elif isinstance(event, Output):
                done[i] += len(event.tokens)
            elif isinstance(event, (Finished, Failed)):
                ended.put(event)

        return listen

    n_all = sum(len(request.prompt) + (request.max_tokens or 0) for request in requests)
    ids: list[int] = []
    timings: list[Timings] = []
    try:
        with _engine_held(model) if len(requests) > 1 else nullcontext():
            for i, request in enumerate(requests):
                ids += model.engine.client.add(request, listener(i))
        while len(timings) < len(requests):
            with suppress(queue.Empty):
                end = ended.get(timeout=TICK)
                if isinstance(end, Failed):
                    raise end.error
                timings.append(end.timings)
            if progress:
                progress(sum(done), n_all)
    finally:
        for id in ids:
            model.engine.client.drop(id)
    return timings


@contextmanager
def _engine_held(model: Model) -> Iterator[None]:
    """Hold the engine idle within this context."""
    holding, prepared = threading.Event(), threading.Event()

    def hold(engine: Engine) -> Generator[None, None, None]:
        holding.set()
        prepared.wait()
        yield

    threading.Thread(target=local_engine(model).thread.call, args=[hold], daemon=True).start()
    holding.wait()
    try:
        yield
    finally:
        prepared.set()
