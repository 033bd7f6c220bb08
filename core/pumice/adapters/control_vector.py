"""Make control vectors: directions that distinguish a model's states between two kinds of text.

For each pair of a positive and a negative prompt, the residual streams after each layer are subtracted token by token.
A layer's direction is the mean of its differences, as in llama-cvector-generator, or their principal axis (PCA),
pointing towards the positive texts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pumice.adapters.adapter import DIRECTION, EMBEDDINGS
from pumice.errors import ModelError, RequestError
from pumice.gguf import GGMLType, TensorInfo, Writer, encode
from pumice.gguf.kinds import CONTROL_VECTOR
from pumice.graph import Graph

Rows = NDArray[np.float32]
Method = Literal["pca", "mean"]

SMALLEST = 1e-6  # smallest significant difference, relative to a row's largest value
MOST_ITERATIONS, CLOSE = 1000, 1e-6  # of the power iteration: maximum steps, and tolerance of convergence


class LogitsModel(Protocol):
    """The part of a model that is used here."""

    def logits(self, ids: Sequence[int]) -> NDArray[np.float32]: ...


class Contrast:
    """An observer of a model's steps that compares pairs of prompts: ``pumice.load(..., observer=contrast)``."""

    def __init__(self) -> None:
        self._layers: list[str] = []
        self._n_embd = 0
        self._steps: list[list[Rows]] = []
        self._differences: list[list[Rows]] = []  # by layer and pair: [t, n_embd]

    def watch(self, graph: Graph) -> Graph:
        """Return the graph with the residual stream after each layer but the last added to its outputs."""
        watched = {f"layer {i}": x for i, x in enumerate(graph.layer_outputs[:-1])}
        if not watched:
            raise ModelError(
                "a control vector needs a model with at least two layers, whose architecture marks their outputs"
            )
        table = next(x for node in graph.nodes for x in node.operands() if x.name == EMBEDDINGS)
        self._layers, self._n_embd = list(watched), int(table.shape[1])
        self._differences = [[] for _ in watched]
        return replace(graph, outputs={**graph.outputs, **watched})

    def __call__(self, outputs: Mapping[str, NDArray[Any]]) -> None:
        """Process a step's outputs; several residual streams are averaged."""
        rows = (outputs[name] for name in self._layers)
        self._steps.append([array.reshape(len(array), -1, self._n_embd).mean(axis=1) for array in rows])

    def add(self, model: LogitsModel, positive: Sequence[int], negative: Sequence[int]) -> None:
        """Let the observed model read a pair of prompts of the same length."""
        if len(positive) != len(negative):
            raise RequestError(
                f"the prompts of a pair have {len(positive)} and {len(negative)} tokens; pad the shorter one"
            )
        pairs = zip(self._read(model, positive), self._read(model, negative), strict=True)
        for differences, (ours, others) in zip(self._differences, pairs, strict=True):
            differences.append(ours - others)

    def directions(self, method: Method = "pca") -> list[Rows]:
        """Return a unit vector ``[n_embd]`` for each layer but the first.

        A layer's direction derives from the output of the previous layer. Raises RequestError if nothing differs.
        """
        rows = [np.concatenate([*layer, np.zeros((0, self._n_embd), np.float32)]) for layer in self._differences]
        rows = [layer[np.abs(layer).max(axis=1, initial=0) > SMALLEST] for layer in rows]
        if not all(map(len, rows)):
            raise RequestError("the positive and the negative prompts do not differ")
        return [_unit(layer.mean(axis=0)) if method == "mean" else principal_axis(layer) for layer in rows]

    def _read(self, model: LogitsModel, prompt: Sequence[int]) -> list[Rows]:
        self._steps = []
        model.logits(prompt)
        return [np.concatenate(steps) for steps in zip(*self._steps, strict=True)]


def principal_axis(rows: Rows) -> Rows:
    """Return the principal axis of rows ``[m, n]``, which are not centered, with the sign of most rows.

    It is the eigenvector of ``X^T X`` with the largest eigenvalue, by power iteration from the rows' mean.
    """
    mean = rows.mean(axis=0)
    axis = _unit(mean if mean.any() else rows[0])
    for _ in range(MOST_ITERATIONS):
        last, axis = axis, _unit(rows.T @ (rows @ axis))
        if np.linalg.norm(axis - last) < CLOSE:
            break
    return axis if mean @ axis >= 0 else -axis


def write_directions(
    path: str | os.PathLike[str], directions: Sequence[Rows], architecture: str, *, force: bool = False
) -> None:
    """Write a control vector for layers 1, 2, ... in llama.cpp's format, for models of the ``architecture``.

    Raises GGUFError if the file cannot be written, or exists and ``force`` is False.
    """
    infos = [TensorInfo(f"{DIRECTION}{i}", GGMLType.F32, row.shape) for i, row in enumerate(directions, 1)]
    metadata = {
        "general.architecture": CONTROL_VECTOR,
        "controlvector.model_hint": architecture,
        "controlvector.layer_count": encode(len(directions), "i32"),
    }
    with Writer(path, metadata, infos, force=force) as writer:
        for row in directions:
            writer.write(np.ascontiguousarray(row, np.float32))


def _unit(vector: Rows) -> Rows:
    return vector / np.float32(np.linalg.norm(vector) or 1.0)
