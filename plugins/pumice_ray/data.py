"""Answers to the prompts of a Ray dataset, by workers with an engine and many concurrent prompts each."""

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
from pumice.plugin.unstable import BatchRow, ModelSpec, Replicas
from pumice.process.codec import portable
from pumice_ray.actor import WORKER, own_devices
from pumice_ray.errors import explain
from pumice_ray.room import find_room
from pumice_ray.stages import bundles
from pumice_server.batch.answering import Answering
from pumice_server.batch.work import answer_all
from pumice_server.command.serving import load_process

_FAILED = "failed"  # only key of the result that reports a failed worker
_CALLS = 3  # concurrent calls per worker, so that the end of one overlaps the start of the next
_WINDOW_ROWS = 200_000  # rows passed to Ray at once from this process's memory
_BATCH_ROWS = 256  # rows per call for a user's dataset


class Worker:
    """Answers rows with an engine in a process of its own, driven by an event loop in this process."""

    def __init__(self, spec: ModelSpec, n_in_flight: int) -> None:
        """Load the model; ``answer`` raises any error, since Ray would restart a failing worker indefinitely."""
        self._n_in_flight = n_in_flight
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="pumice-worker", daemon=True).start()
        spec = dataclasses.replace(spec, options=own_devices(spec.options))
        self._error: Exception | None = None
        try:
            self._answering = self._run(Answering(spec, partial(load_process, command=WORKER)).__aenter__())
        except Exception as error:
            self._error = portable(error)

    def answer(self, rows: Sequence[BatchRow]) -> list[dict[str, Any]]:
        """Return a result for each row in order of completion. Raises the errors of loading."""
        if self._error:
            raise self._error

        async def collect() -> list[dict[str, Any]]:
            return [result async for result in answer_all(rows, self._answering.answer, self._n_in_flight)]

        return self._run(collect())

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class RowWorker(Worker):
    """Answers rows of a batch, stored as JSON in a column."""

    def __call__(self, batch: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        try:
            results = self.answer([BatchRow(**orjson.loads(text)) for text in batch["row"]])
        except pumice.PumiceError as error:  # raised again by the reader of the results
            results = [{_FAILED: str(error)}]
        return {"result": [orjson.dumps(result).decode() for result in results]}


class PromptWorker(Worker):
    """Answers prompts in a column of any table, and adds the answers as columns."""

    def __init__(self, spec: ModelSpec, n_in_flight: int, column: str, into: str, fields: Mapping[str, Any]) -> None:
        super().__init__(spec, n_in_flight)
        self._column, self._into, self._fields = column, into, fields

    def __call__(self, table: Any) -> Any:
        import pyarrow

        prompts = table.column(self._column).to_pylist()
        responses_by_place = {
            result["custom_id"]: result["response"]
            for result in self.answer([*map(self._row, range(len(prompts)), prompts)])
        }
        responses = [responses_by_place[str(place)] for place in range(len(prompts))]
        text, string = pyarrow.array([*map(_text, responses)], pyarrow.string()), pyarrow.string()
        table = table.append_column(self._into, text)
        return table.append_column(f"{self._into}_error", pyarrow.array([*map(_error, responses)], string))

    def _row(self, place: int, prompt: Any) -> BatchRow:
        chat = not isinstance(prompt, str)
        name, url = ("messages", "/v1/chat/completions") if chat else ("prompt", "/v1/completions")
        return BatchRow(str(place), url, {**self._fields, name: prompt})


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
    """Return a Ray dataset with the model's answers in the column ``into`` and errors in ``<into>_error``.

    Args:
        dataset: a ``ray.data.Dataset`` whose ``column`` has prompts: texts to continue, or messages of chats.
        model: a name, or a path that exists on every machine.
        column: name of the column with prompts.
        into: name of the column for answers.
        replicas: number of workers, or its minimum and maximum; each has ``num_cpus``, ``num_gpus`` and an engine.
        num_cpus: CPUs per worker.
        num_gpus: GPUs per worker; may be a fraction.
        n_parallel: maximum concurrent sequences per worker.
        options: further arguments of ``pumice.load``.
        fields: fields of each request, as in OpenAI's API: max_tokens, temperature, ...
    """
    least, most = (replicas, replicas) if isinstance(replicas, int) else replicas
    path = model or str(pumice.demo_model_path())
    spec = ModelSpec([path], path, {**(options or {}), "n_parallel": n_parallel})
    named = {"spec": spec, "n_in_flight": 2 * n_parallel, "column": column, "into": into, "fields": fields}
    return dataset.map_batches(
        PromptWorker,
        fn_constructor_kwargs=named,
        batch_size=_BATCH_ROWS,
        batch_format="pyarrow",
        **_room(Replicas(least, most, num_cpus, num_gpus)),
    )


def answer_rows(
    spec: ModelSpec, rows: Iterable[BatchRow], n_in_flight: int, replicas: Replicas
) -> Iterator[dict[str, Any]]:
    """Yield one result per row in order of completion. Raises the errors of loading, or EngineDiedError.

    Workers of Ray Data have all layers on one machine; models with stages run as replicas of Serve, driven from here.
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


def _answer_from_here(
    spec: ModelSpec, rows: Iterable[BatchRow], n_in_flight: int, room: Replicas
) -> Iterator[dict[str, Any]]:
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


def _text_of(row: BatchRow) -> str:
    return orjson.dumps(dataclasses.asdict(row)).decode()


def _text(response: Mapping[str, Any]) -> str | None:
    if response["status_code"] >= 400:
        return None
    (choice,) = response["body"]["choices"]
    text: str | None = choice["text"] if "text" in choice else choice["message"]["content"]
    return text


def _error(response: Mapping[str, Any]) -> str | None:
    return response["body"]["error"]["message"] if response["status_code"] >= 400 else None


def _be_quiet() -> None:
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
