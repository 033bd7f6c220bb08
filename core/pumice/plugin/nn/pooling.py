"""Layers after pooling: the dense layers of embedding models, and the classifiers of rerankers."""

from __future__ import annotations

from pumice.plugin import GraphBuilder, Tensor
from pumice.plugin.nn.blocks import Activation, find_scale, project


def dense(g: GraphBuilder, x: Tensor) -> None:
    """Add the output ``embedding`` for ``x [n_seqs, n_embd]``, if the file has sentence-transformers' dense layers."""
    y = x
    for name in ("dense_2", "dense_3"):
        y = _linear(g, y, name)
    if y is not x:
        g.output("embedding", y)


def classifier(g: GraphBuilder, x: Tensor, activation: Activation, *, eps: float, softmax: bool) -> None:
    """Add the output ``scores`` for ``x [n_seqs, n_embd]``, if the file has a classifier.

    ``cls`` and an ``activation``, then ``cls.norm``, then ``cls.output``; each may be missing.
    """
    y = _linear(g, x, "cls")
    if y is not x:
        y = activation(y)
        norm = g.find_weight("cls.norm.weight", (int(y.shape[-1]),))
        y = y if norm is None else g.layer_norm(y, norm, None, eps)
    y = _linear(g, y, "cls.output")
    if y is not x:
        g.output("scores", g.softmax(y) if softmax else y)


def _linear(g: GraphBuilder, x: Tensor, name: str) -> Tensor:
    """Apply a matrix and its bias to ``x``; return ``x`` if the file has none."""
    weight = g.find_weight(f"{name}.weight")
    if weight is None:
        return x
    if len(weight.shape) == 1:  # many writers omit a last dimension of 1
        weight = g.derived(f"{name}, one row", (1, int(weight.shape[0])), lambda row: row[None], weight)
    return project(g, x, weight, g.find_weight(f"{name}.bias", weight.shape[:1]), find_scale(g, name))  # type: ignore[arg-type]
