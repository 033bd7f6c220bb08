"""Steps of readings: rows of logits or of hidden states of many sequences in one batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pumice.architecture import ALIGN, ENCODER, HEAD, MAIN
from pumice.backend.step import Batch
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.loop.scheduler import Scheduler
from pumice.engine.placement.runner import Runner
from pumice.engine.requests.batches import Part, Place, batch_of
from pumice.engine.requests.job import Job
from pumice.engine.requests.reading import LayerRows, Reading, ReadMembers, Rows, TextRows
from pumice.engine.requests.sounds import Alignment, Speaking


class ReadSteps:
    """Computes the steps of readings, and those of encoders before any other step of their sequences.

    ``fills_masks``: the model generates by diffusion.
    """

    def __init__(self, runner: Runner, cache: KVCache, scheduler: Scheduler, fills_masks: bool) -> None:
        self._runner = runner
        self._cache = cache
        self._scheduler = scheduler
        self._fills_masks = fills_masks

    def reads_whole(self, kind: str) -> bool:
        """Return True if steps of a kind of readings compute whole sequences."""
        model = self._runner.model
        if kind != "hidden":
            return self._fills_masks or MAIN in model.whole
        return model.embedder in model.whole

    def read_encoder_prompts(self, members: Sequence[Job]) -> None:
        """Let the encoder read the prompts of sequences that have not had theirs read, into their memory."""
        n_batch = self._scheduler.limits.n_batch
        for active in members:
            prompt, memory = active.encoder_prompt, active.memory
            if prompt is None or memory is None or active.is_read:
                continue
            place = Place(active.slot, memory.tables)
            for start in range(0, len(prompt.tokens), n_batch):
                tokens = prompt.tokens[start : start + n_batch]
                wanted = range(len(tokens)) if isinstance(active, Alignment) else ()
                part = Part(place, tokens, start, wanted, media=prompt.media)
                outputs = self._runner.outputs(batch_of(self._cache, [part]), ENCODER)
                if isinstance(active, Alignment):
                    active.take_keys(start, outputs["keys"])
            active.is_read = True

    def compute(self, members: ReadMembers) -> None:
        """Compute a step, and give each member its rows. An error is that of all members.

        Readings that are done leave the schedule; what one of them cannot take is its own error.
        """
        n_rows = self._scheduler.n_rows(members[0][0].kind)
        rows: list[Sequence[int]] = []
        for reader, n_new in members:
            rows.append(reader.wanted_rows(n_new, n_rows))
            n_rows -= len(rows[-1])
        parts = [reader.part(n_new, wanted) for (reader, n_new), wanted in zip(members, rows, strict=True)]
        started = time.perf_counter()
        output = self._outputs(members[0][0], batch_of(self._cache, parts))
        seconds = time.perf_counter() - started
        first = 0
        for (reader, n_new), wanted in zip(members, rows, strict=True):
            self._take(reader, n_new, output[first : first + len(wanted)], seconds)
            first += len(wanted)
        self._finish([reader for reader, _ in members if reader.done])

    def _outputs(self, first: Reading[Any], batch: Batch) -> Rows:
        if isinstance(first, LayerRows):
            sites = first.sites
            rows = self._runner.layers(replace(batch, exact=True), sites)
            return np.stack([rows[site].reshape(len(batch.tokens), -1) for site in sites], axis=1)
        if isinstance(first, Alignment):
            return self._runner.outputs(batch, ALIGN)["queries"]
        if isinstance(first, Speaking):
            outputs = self._runner.outputs(batch, first.graph)
            return np.concatenate([outputs[name] for name in ("hidden", "logits") if name in outputs], axis=1)
        if first.kind != "hidden":
            outputs = self._runner.outputs(batch)
            return outputs["logits"]
        embedder = self._runner.model.embedder
        assert embedder is not None, "the model gives no hidden states"
        return self._runner.outputs(replace(batch, exact=True), embedder)["hidden"]

    def _take(self, reader: Reading[Any], n_new: int, rows: Rows, seconds: float) -> None:
        first = reader.n_past
        try:
            reader.n_done += len(rows)
            if len(rows):
                reader.take(rows)
            reader.took(first, n_new, seconds)
            self._scheduler.read(reader, n_new)
            self._scheduler.events += reader.events()
        except Exception as error:
            self._scheduler.fail([reader], error)

    def _finish(self, readers: Sequence[Reading[Any]]) -> None:
        """Let readings that are done leave; pooled hidden states pass through the model's head, if it has one."""
        readers = [reader for reader in readers if reader in self._scheduler.readers]
        for scores, output in ((False, "embedding"), (True, "scores")):
            texts = [item for item in readers if isinstance(item, TextRows) and item.scores is scores]
            try:
                self._pool(texts, output)
            except Exception as error:
                self._scheduler.fail(texts, error)
        for reader in readers:
            self._scheduler.end_reading(reader)

    def _pool(self, texts: Sequence[TextRows], output: str) -> None:
        if not texts:
            return
        pooled = [text.pooled() for text in texts]
        values = self._head(np.concatenate(pooled), output)
        bounds = np.cumsum([len(rows) for rows in pooled])
        for text, rows in zip(texts, np.split(values, bounds[:-1]), strict=True):
            text.result = rows if text.pooling == "none" else rows[0]

    def _head(self, rows: Rows, output: str) -> Rows:
        if output not in self._runner.model.results(HEAD):
            return rows
        most = self._scheduler.limits.n_seqs
        parts = [rows[first : first + most] for first in range(0, len(rows), most)]
        return np.concatenate([self._runner.outputs(_rows_alone(part), HEAD)[output].copy() for part in parts])


def _rows_alone(rows: Rows) -> Batch:
    """Return a batch of sequences with one row each."""
    zeros, order = np.zeros(len(rows), np.int32), np.arange(len(rows) + 1, dtype=np.int32)
    return Batch(zeros, zeros, zeros[:0], order, order[:-1], {}, inputs={"pooled": rows}, exact=True)
