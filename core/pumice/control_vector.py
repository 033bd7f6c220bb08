"""Making control vectors: what tells the states of a model that reads one kind of text from those of another.

Of each pair of prompts, a positive and a negative one, the residual streams after each layer are subtracted, token by
token. A layer's direction is the mean of its differences, as llama-cvector-generator has it, or the axis along which
they are largest (PCA), towards the positive texts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pumice.adapters.adapter import CONTROL_VECTOR, DIRECTION, EMBEDDINGS
from pumice.errors import ModelError, RequestError
from pumice.gguf import GGMLType, TensorInfo, Writer, encode
from pumice.graph import Graph

Rows = NDArray[np.float32]
Method = Literal["pca", "mean"]

SMALLEST = 1e-6  # of a row's largest value: what differs by less says nothing
MOST_ITERATIONS, CLOSE = 1000, 1e-6  # of the power iteration, and between two unit vectors of it


class Scorer(Protocol):
    """What is asked of a model."""

    def logits(self, ids: Sequence[int]) -> NDArray[np.float32]: ...


class Contrast:
    """An observer of a model's steps, which takes pairs of prompts: ``pumice.load(..., observer=contrast)``."""

    def __init__(self) -> None:
        self._layers: list[str] = []
        self._n_embd = 0
        self._steps: list[list[Rows]] = []
        self._differences: list[list[Rows]] = []  # by layer and pair: [t, n_embd]

    def watch(self, graph: Graph) -> Graph:
        """The graph with the residual stream after each layer but the last among its outputs."""
        watched = {f"layer {i}": x for i, x in enumerate(graph.layer_outputs[:-1])}
        if not watched:
            raise ModelError("a control vector needs a model of two layers at least, whose architecture names them")
        table = next(x for node in graph.nodes for x in node.operands() if x.name == EMBEDDINGS)
        self._layers, self._n_embd = list(watched), int(table.shape[1])
        self._differences = [[] for _ in watched]
        return replace(graph, outputs={**graph.outputs, **watched})

    def __call__(self, outputs: Mapping[str, NDArray[Any]]) -> None:
        """Take a step's outputs; of several streams side by side their mean."""
        rows = (outputs[name] for name in self._layers)
        self._steps.append([each.reshape(len(each), -1, self._n_embd).mean(axis=1) for each in rows])

    def add(self, model: Scorer, positive: Sequence[int], negative: Sequence[int]) -> None:
        """Let the model, which this observes, read a pair of prompts of the same length."""
        if len(positive) != len(negative):
            raise RequestError(f"the prompts of a pair have {len(positive)} and {len(negative)} tokens: fill one up")
        pairs = zip(self._read(model, positive), self._read(model, negative), strict=True)
        for found, (ours, others) in zip(self._differences, pairs, strict=True):
            found.append(ours - others)

    def directions(self, method: Method = "pca") -> list[Rows]:
        """What was found, a unit vector ``[n_embd]`` for each layer but the first.

        The direction of a layer comes from what the one before gives. RequestError if nothing differs.
        """
        rows = [np.concatenate([*found, np.zeros((0, self._n_embd), np.float32)]) for found in self._differences]
        rows = [each[np.abs(each).max(axis=1, initial=0) > SMALLEST] for each in rows]
        if not all(map(len, rows)):
            raise RequestError("the positive and the negative prompts do not differ")
        return [_unit(each.mean(axis=0)) if method == "mean" else principal_axis(each) for each in rows]

    def _read(self, model: Scorer, prompt: Sequence[int]) -> list[Rows]:
        self._steps = []
        model.logits(prompt)
        return [np.concatenate(steps) for steps in zip(*self._steps, strict=True)]


def principal_axis(rows: Rows) -> Rows:
    """The unit vector along which rows ``[m, n]`` are largest, not less their mean; most of them point along it.

    The eigenvector of ``X^T X`` with the largest eigenvalue, by power iteration from the rows' mean.
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
    """Write a control vector of layers 1, 2, ... as llama.cpp has it; ``architecture``: of the model it is for.

    GGUFError if it cannot be written, or is there already without ``force``.
    """
    infos = [TensorInfo(f"{DIRECTION}{i}", GGMLType.F32, each.shape) for i, each in enumerate(directions, 1)]
    metadata = {
        "general.architecture": CONTROL_VECTOR,
        "controlvector.model_hint": architecture,
        "controlvector.layer_count": encode(len(directions), "i32"),
    }
    with Writer(path, metadata, infos, force=force) as writer:
        for each in directions:
            writer.write(np.ascontiguousarray(each, np.float32))


def _unit(vector: Rows) -> Rows:
    return vector / np.float32(np.linalg.norm(vector) or 1.0)
