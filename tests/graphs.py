"""Building and running small graphs in tests, on any backend."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gguf_files import write_gguf
from pumice.backend import Backend, Program
from pumice.backend.pick import Ahead, Ask
from pumice.backend.step import Batch, Limits, Step
from pumice.gguf import GGUFFile
from pumice.graph import GraphBuilder, Tensor
from pumice.graph.rotate import rotate_caches
from pumice.testing import compile_graph, trace

BLOCK_SIZE = 8


@dataclass
class Case:
    """A graph of a few operations. ``build`` gets a builder and the activations as tensors; weights come by name."""

    build: Callable[[GraphBuilder, Mapping[str, Tensor]], Tensor]
    activations: Mapping[str, np.ndarray]
    weights: Mapping[str, np.ndarray]


def builder(folder: Path, weights: Mapping[str, np.ndarray], n_layer: int = 1) -> GraphBuilder:
    """A graph builder over a file with these weights."""
    path = write_gguf(
        folder / "weights.gguf", {"general.architecture": "test"}, weights or {"unused": np.ones(1, "f4")}
    )
    return GraphBuilder(GGUFFile.open(path).tensors, n_layer, 64)


def limits(windows: tuple[int, ...] = (0,), kv_type: str = "f32", n_seqs: int = 4, n_checkpoints: int = 0) -> Limits:
    return Limits(
        n_ctx=64,
        n_batch=64,
        n_outputs=64,
        n_seqs=n_seqs,
        block_size=BLOCK_SIZE,
        n_blocks=dict.fromkeys(windows, 8 * n_seqs),
        kv_type=kv_type,
        n_checkpoints=n_checkpoints,
    )


def batch(lengths: list[int], n_past: list[int] | None = None, windows: tuple[int, ...] = (0,)) -> Batch:
    """``lengths`` new tokens of sequences that already have ``n_past``; blocks are dealt out in a mixed order."""
    n_past = n_past or [0] * len(lengths)
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    tables = np.array([[s + len(lengths) * b for b in range(8)] for s in range(len(lengths))], np.int32)[:, ::-1].copy()
    return Batch(
        tokens=np.arange(starts[-1], dtype=np.int32),
        positions=np.concatenate([np.arange(p, p + n, dtype=np.int32) for p, n in zip(n_past, lengths, strict=True)]),
        output_ids=np.arange(starts[-1], dtype=np.int32),
        seq_starts=starts,
        slots=np.arange(len(lengths), dtype=np.int32)[::-1].copy(),
        block_tables=dict.fromkeys(windows, tables),
    )


def step_of(batch: Batch, ask: Ask | None = None, **more: Any) -> Step:
    """A step with the inputs that a batch brings."""
    inputs = {"tokens": batch.tokens, "positions": batch.positions, "output_ids": batch.output_ids}
    return Step(batch, inputs, ask, **more)


def picked(program: Program, batch: Batch, ask: Ask) -> Ahead:
    """The tokens that a program picks behind a batch."""
    first, *rest = program.submit(step_of(batch, ask)).tokens()
    if not rest:
        return first
    ids, logits, picks = (
        np.concatenate(arrays)
        for arrays in zip(*((part.ids, part.logits, part.picked) for part in (first, *rest)), strict=True)
    )
    return Ahead(ids, logits, picks)


class Graphed:
    """A case compiled for one backend; call it with activations and a batch."""

    def __init__(
        self, folder: Path, backend: Backend, case: Case, limits: Limits, *, rotates_caches: bool = False
    ) -> None:
        g = builder(folder, case.weights)
        output = trace(g, case.build, case.activations)
        graph = g.finish(output)
        self.program = compile_graph(backend, rotate_caches({"": graph})[""] if rotates_caches else graph, limits)
        self._output = output.name

    def __call__(self, activations: Mapping[str, np.ndarray], batch: Batch) -> np.ndarray:
        steps = {"tokens": batch.tokens, "positions": batch.positions, "output_ids": batch.output_ids}
        return self.program.run(Step(batch, {**steps, **activations}))[self._output].copy()


def table_program(folder: Path, backend: Backend, table: np.ndarray, limits: Limits) -> Program:
    """Compile a program whose logits of a token are its row of the table."""
    g = builder(folder, {"table": table})
    with g.layer(0):
        graph = g.finish(g.get_rows(g.embedding(g.weight("table"), g.tokens), g.output_ids))
    return compile_graph(backend, graph, limits)
