"""A model ready to compute: its graph traced, placed and compiled."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import Architecture
from pumice.backend import Backend, Batch, KernelTime, Limits, Program
from pumice.engine.pipeline import Pipeline
from pumice.engine.placement import place_layers
from pumice.errors import ModelError, RequestError
from pumice.gguf import GGUFFile
from pumice.graph import (
    N_OUTPUTS,
    Graph,
    GraphBuilder,
    KVState,
    RecurrentState,
    concrete,
    format_graph,
    plan_memory,
)

BLOCK_SIZE = 32  # positions in one block of the KV cache


@dataclass(frozen=True)
class Sizes:
    """What the user chooses: see ``Limits``."""

    n_ctx: int
    n_batch: int
    n_parallel: int
    kv_type: str


class Observer(Protocol):
    """Sees values inside the steps of a model."""

    def watch(self, graph: Graph) -> Graph:
        """The graph with more outputs."""

    def __call__(self, outputs: Mapping[str, NDArray[Any]]) -> None:
        """Look at a step's outputs, by name. They are valid until it returns."""


CHECKPOINT_BYTES = 512 * 2**20
"""That copies of recurrent states may take, if there are two of them at least."""


def trace(file: GGUFFile, architecture: Architecture, n_ctx: int) -> Graph:
    """Build the model's graph. Raises ModelError, with the file's name, for a tensor missing or of a wrong shape."""
    try:
        builder = GraphBuilder(file.tensors, architecture.n_layer, n_ctx)
        graph = builder.finish(architecture.build(builder))
        _check_logits(graph, file)
    except ModelError as error:
        raise ModelError(f"{file.path}: {error}") from None
    return graph


def _check_logits(graph: Graph, file: GGUFFile) -> None:
    """Logits of all tokens would be taken for those of the wanted ones."""
    logits = graph.outputs.get("logits")
    if logits is None:
        return
    if len(logits.shape) != 2 or logits.shape[0] != N_OUTPUTS:
        raise ModelError(
            f"the architecture's logits {logits} must be [n_outputs, n_vocab]: take the rows g.output_ids of the "
            f"activations, with g.get_rows, before the output matrix"
        )
    n_tokens = len(file.metadata.get("tokenizer.ggml.tokens", ()))
    if int(logits.shape[1]) < n_tokens:
        raise ModelError(f"the architecture gives {logits.shape[1]} logits, the vocabulary has {n_tokens} tokens")


def make_limits(graph: Graph, sizes: Sizes) -> Limits:
    """Size the cache: every layer can hold ``n_ctx`` positions; one with a window only what its window can reach."""
    whole = -(-sizes.n_ctx // BLOCK_SIZE)
    n_blocks = {}
    for window in attention_windows(graph):
        reach = -(-(window + sizes.n_batch) // BLOCK_SIZE) + 1
        n_blocks[window] = min(whole, reach * sizes.n_parallel) if window else whole
    return Limits(
        n_ctx=sizes.n_ctx,
        n_batch=sizes.n_batch,
        n_outputs=max(64, sizes.n_parallel),
        n_seqs=sizes.n_parallel,
        block_size=BLOCK_SIZE,
        n_blocks=n_blocks,
        kv_type=sizes.kv_type,
        more_sizes=graph.sizes,
        n_checkpoints=_n_checkpoints(graph, sizes.n_parallel),
    )


def _n_checkpoints(graph: Graph, n_seqs: int) -> int:
    """Copies of recurrent states: one for each sequence that runs ahead, and as many or more prefixes."""
    states = [state for state in graph.states if isinstance(state, RecurrentState)]
    if not states:
        return 0
    n_bytes = sum(4 * math.prod(state.shape) for state in states)
    return max(2, min(2 * n_seqs + 14, CHECKPOINT_BYTES // n_bytes))


def attention_windows(graph: Graph) -> list[int]:
    """The distinct attention windows of the graph's layers; layers of one window share block tables."""
    return sorted({state.window for state in graph.states if isinstance(state, KVState)})


def step_inputs(graph: Graph, batch: Batch) -> dict[str, NDArray[Any]]:
    """What each input of a graph is in a step; fills in ``batch.more_sizes``."""
    brought = {"tokens": batch.tokens, "positions": batch.positions, "output_ids": batch.output_ids, **batch.inputs}
    sizes = dict(batch.sizes)
    values = {}
    for name, tensor in graph.inputs.items():
        if name not in brought and tensor.fill is None:
            raise RequestError(f"the input {tensor} is missing")
        values[name] = brought[name] if tensor.fill is None or name in brought else tensor.fill(batch)
        first, shape = tensor.shape[0], values[name].shape
        if isinstance(first, str) and shape:
            sizes.setdefault(first, shape[0])
        if shape != concrete(tensor.shape, sizes):
            raise RequestError(f"the input {tensor} is given with shape {list(shape)}")
    batch.more_sizes = {name: sizes[name] for name in graph.sizes if name in sizes}
    return values


class Runner:
    """Runs one model's batches.

    ``backends`` are in line: each node goes to the first that claims it. ``observe`` is called with the outputs of each
    step.
    """

    def __init__(
        self,
        graph: Graph,
        backends: Sequence[tuple[str, Backend]],
        limits: Limits,
        n_gpu_layers: int = -1,
        progress: Callable[[int, int], None] | None = None,
        observe: Callable[[Mapping[str, NDArray[Any]]], None] | None = None,
    ) -> None:
        self.limits = limits
        self.recurrent = any(isinstance(state, RecurrentState) for state in graph.states)
        self.n_vocab = int(graph.outputs["logits"].shape[-1])
        self._graph = graph
        self._backends = backends
        placed = place_layers(graph, backends, limits, n_gpu_layers)
        self._segments = [dict(backends)[segment.backend].rewrite(segment) for segment in placed]
        self._plans = [plan_memory(segment, limits.sizes) for segment in self._segments]
        self.keeps_states = False  # whether it has recurrent states, which can be copied; known once it is compiled
        self._program: Program | None = None
        self._progress = progress
        self._observe = observe

    def compile(self) -> None:
        """Hand every segment to its backend. Raises BackendError, for example when memory runs out."""
        by_name = dict(self._backends)
        with ExitStack() as stack:
            programs = []
            for segment, plan in zip(self._segments, self._plans, strict=True):
                programs.append(by_name[segment.backend].compile(segment, plan, self.limits))
                stack.callback(programs[-1].close)
                if self._progress:
                    self._progress(len(programs), len(self._segments))
            stack.pop_all()
        stateful = [
            program
            for segment, program in zip(self._segments, programs, strict=True)
            if any(isinstance(state, RecurrentState) for state in segment.states)
        ]
        self.keeps_states = bool(stateful) and all(program.copies_slots for program in stateful)
        alone = len(programs) == 1 and programs[0].max_steps != 1
        self._program = programs[0] if alone else Pipeline(self._segments, programs, partial(step_inputs, self._graph))

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Logits ``[n_outputs, n_vocab]``, valid until the next run."""
        return self.outputs(batch)["logits"]

    def outputs(self, batch: Batch) -> dict[str, NDArray[Any]]:
        """The graph's outputs by name, valid until the next run. Raises RequestError for a wrong or missing input."""
        assert self._program is not None, "compile comes first"
        inputs = step_inputs(self._graph, batch)
        values = {**inputs, **self._program.run(inputs, batch)}
        outputs = {name: values[tensor.name] for name, tensor in self._graph.outputs.items()}
        if self._observe:
            self._observe(outputs)
        return outputs

    @property
    def lost(self) -> bool:
        """Whether the last ``run`` failed and took parts of earlier ones with it: see ``Pipeline``."""
        return isinstance(self._program, Pipeline) and self._program.lost

    @property
    def ahead(self) -> Program | None:
        """The program, if it can generate by itself, and there is nothing that cannot be taken back."""
        takes_back = self.keeps_states or not self.recurrent
        return self._program if self._program and self._program.max_steps and takes_back else None

    def copy_slots(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy the recurrent states of slots: for each pair from and to."""
        assert self._program is not None, "compile comes first"
        self._program.copy_slots(pairs)

    @property
    def backends_used(self) -> list[str]:
        """Names of the backends that have a segment, the one with most nodes first."""
        nodes: dict[str, int] = {}
        for segment in self._segments:
            nodes[segment.backend] = nodes.get(segment.backend, 0) + len(segment.nodes)
        return sorted(nodes, key=lambda name: -nodes[name])

    @property
    def memory(self) -> dict[str, int]:
        """Bytes held, by purpose, over all backends."""
        return dict(self._program.memory) if self._program else {}

    def profile(self) -> list[KernelTime]:
        """Times of the kernels of the last step, by name, the longest first."""
        times: dict[str, list[float]] = {}
        for kernel in self._program.profile() if self._program else []:
            count, total = times.get(kernel.name, (0, 0.0))
            times[kernel.name] = [count + kernel.count, total + kernel.microseconds]
        kernels = [KernelTime(name, int(count), total) for name, (count, total) in times.items()]
        return sorted(kernels, key=lambda kernel: -kernel.microseconds)

    def describe(self) -> str:
        """The placed graph as text."""
        return format_graph(self._segments, self._plans, self._graph.n_layer)

    def close(self) -> None:
        """Close the programs. The backends belong to who made them."""
        if self._program is not None:
            self._program.close()
        self._program = None
