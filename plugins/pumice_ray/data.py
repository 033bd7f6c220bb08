"""Prompts of a Ray dataset, answered by workers of which each has an engine, and many prompts in hand."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import orjson
import ray.data

import pumice
from pumice.plugin import Replicas
from pumice.process.codec import portable
from pumice_ray.actor import WORKER, own_devices
from pumice_ray.errors import explain
from pumice_ray.room import find_room
from pumice_ray.stages import bundles
from pumice_server.batch.answering import Answering
from pumice_server.batch.rows import Row
from pumice_server.batch.work import answer_all
from pumice_server.entry import Spec
from pumice_server.serving import load_process

_FAILED = "failed"  # the only key of what stands for the results of a worker that cannot answer
_CALLS = 3  # of a worker at once: while the last rows of one are computed, those of the next are
_WINDOW_ROWS = 200_000  # that are given to Ray at once, from this process's memory
_BATCH_ROWS = 256  # of a dataset of others: rows of a call


class Worker:
    """Answers rows as one machine does, by an engine in a process of its own, in an event loop of its own."""

    def __init__(self, spec: Spec, n_in_flight: int) -> None:
        """What loading raises is raised by ``answer``: Ray would start a worker again and again that cannot begin."""
        self._n_in_flight = n_in_flight
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="pumice-worker", daemon=True).start()
        spec = dataclasses.replace(spec, options=own_devices(spec.options))
        self._error: Exception | None = None
        try:
            self._answering = self._run(Answering(spec, partial(load_process, command=WORKER)).__aenter__())
        except Exception as error:
            self._error = portable(error)

    def answer(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """A result for each row, as they end. Raises what loading raised."""
        if self._error:
            raise self._error

        async def collect() -> list[dict[str, Any]]:
            return [result async for result in answer_all(rows, self._answering.answer, self._n_in_flight)]

        return self._run(collect())

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class RowWorker(Worker):
    """Rows of a batch, in a column of JSON."""

    def __call__(self, batch: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        try:
            results = self.answer([Row(**orjson.loads(text)) for text in batch["row"]])
        except pumice.PumiceError as error:  # raised over there, by who reads it
            results = [{_FAILED: str(error)}]
        return {"result": [orjson.dumps(result).decode() for result in results]}


class PromptWorker(Worker):
    """Prompts in a column of any table, answers in further columns."""

    def __init__(self, spec: Spec, n_in_flight: int, column: str, into: str, fields: Mapping[str, Any]) -> None:
        super().__init__(spec, n_in_flight)
        self._column, self._into, self._fields = column, into, fields

    def __call__(self, table: Any) -> Any:
        import pyarrow

        prompts = table.column(self._column).to_pylist()
        found = {
            result["custom_id"]: result["response"]
            for result in self.answer([*map(self._row, range(len(prompts)), prompts)])
        }
        responses = [found[str(place)] for place in range(len(prompts))]
        text, string = pyarrow.array([*map(_text, responses)], pyarrow.string()), pyarrow.string()
        table = table.append_column(self._into, text)
        return table.append_column(f"{self._into}_error", pyarrow.array([*map(_error, responses)], string))

    def _row(self, place: int, prompt: Any) -> Row:
        chat = not isinstance(prompt, str)
        name, url = ("messages", "/v1/chat/completions") if chat else ("prompt", "/v1/completions")
        return Row(str(place), url, {**self._fields, name: prompt})


def map_prompts(
    dataset: Any,
    model: str | None = None,
    *,
    column: str = "prompt",
    into: str = "text",
    replicas: int | tuple[int, int] = 1,
    num_cpus: float = 1.0,
    num_gpus: float = 0.0,
    n_parallel: int = 16,
    options: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Any:
    """A dataset of Ray, with the model's answers in the column ``into``, and why there is none in ``<into>_error``.

    Args:
        dataset: a ``ray.data.Dataset`` with prompts in ``column``: texts to continue, or messages of chats.
        model: a name, or a path that is there on every machine.
        replicas: workers, or the least and most of them; each has ``num_cpus``, ``num_gpus`` and an engine.
        n_parallel: most sequences that one computes at once.
        options: further arguments of ``pumice.load``.
        fields: of each request, as OpenAI's: max_tokens, temperature, ...
    """
    least, most = (replicas, replicas) if isinstance(replicas, int) else replicas
    path = model or str(pumice.demo_model_path())
    spec = Spec([path], path, {**(options or {}), "n_parallel": n_parallel})
    named = {"spec": spec, "n_in_flight": 2 * n_parallel, "column": column, "into": into, "fields": fields}
    return dataset.map_batches(
        PromptWorker,
        fn_constructor_kwargs=named,
        batch_size=_BATCH_ROWS,
        batch_format="pyarrow",
        **_room(Replicas(least, most, num_cpus, num_gpus)),
    )


def answer_rows(spec: Spec, rows: Iterable[Row], n_in_flight: int, replicas: Replicas) -> Iterator[dict[str, Any]]:
    """One result of each row, as they come. Raises what loading the model raised, or EngineDiedError.

    Workers of Ray Data have their layers on one machine; models with stages are replicas of Serve, asked from here.
    """
    if replicas.staged:
        yield from _answer_from_here(spec, rows, n_in_flight, replicas)
        return
    _be_quiet()
    find_room(bundles(replicas) * replicas.least, replicas.wait_seconds)
    coming = iter(rows)
    while items := [{"row": _text_of(row)} for row in itertools.islice(coming, _WINDOW_ROWS)]:
        n_blocks = -(-len(items) // max(1, n_in_flight // 2))
        dataset = ray.data.from_items(items, override_num_blocks=n_blocks).map_batches(
            RowWorker,
            fn_constructor_kwargs={"spec": spec, "n_in_flight": n_in_flight},
            batch_size=None,
            **_room(replicas),
        )
        try:
            for batch in dataset.iter_batches(batch_size=None, prefetch_batches=0):
                for result in map(orjson.loads, batch["result"]):
                    if _FAILED in result:
                        raise pumice.EngineError(result[_FAILED])
                    yield result
        except ray.exceptions.RayError as error:
            raise explain(error) from None


def _answer_from_here(spec: Spec, rows: Iterable[Row], n_in_flight: int, room: Replicas) -> Iterator[dict[str, Any]]:
    from pumice_ray.deployment import load_replicas

    answering = Answering(spec, lambda spec, _, deliver: load_replicas(spec, room, deliver))
    results = answer_all(rows, answering.answer, n_in_flight * room.most)

    async def next_result() -> dict[str, Any] | None:
        return await anext(results, None)

    with asyncio.Runner() as runner:
        runner.run(answering.__aenter__())
        try:
            while (result := runner.run(next_result())) is not None:
                yield result
        finally:
            runner.run(answering.__aexit__())


def _room(replicas: Replicas) -> dict[str, Any]:
    pool = ray.data.ActorPoolStrategy(
        min_size=replicas.least,
        max_size=replicas.most,
        max_concurrent_calls_per_actor=_CALLS,
        max_tasks_in_flight_per_actor=2 * _CALLS,
        enable_true_multi_threading=True,
    )
    return {"compute": pool, "num_cpus": replicas.n_cpus, "num_gpus": replicas.n_gpus}


def _text_of(row: Row) -> str:
    return orjson.dumps(dataclasses.asdict(row)).decode()


def _text(response: Mapping[str, Any]) -> str | None:
    if response["status_code"] >= 400:
        return None
    (choice,) = response["body"]["choices"]
    found: str | None = choice["text"] if "text" in choice else choice["message"]["content"]
    return found


def _error(response: Mapping[str, Any]) -> str | None:
    return response["body"]["error"]["message"] if response["status_code"] >= 400 else None


def _be_quiet() -> None:
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
