"""A quantized file beside the one that it was made of: which tensors, and which layers, lose most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pumice.check.findings import Finding, Subject, Variant
from pumice.check.weights import OF_LAYER
from pumice.evaluate.kl_divergence import log_softmax
from pumice.gguf.quants import dequantize
from pumice.gguf.tensors import ModelTensor

N_TOKENS = 128  # of the text whose predictions are compared
N_ROWS = 256  # of a tensor whose errors are compared, spread over all rows
LARGEST_LOSS = 2.0  # ratio of a tensor's error to that of the reference quantizer of its type
MOST_SHOWN = 5


class Loss(NamedTuple):
    """Root mean square error of a tensor relative to its numbers: the file's, and the reference quantizer's or 0."""

    error: float
    reference: float


def check_quantization(subject: Subject) -> Iterator[Finding]:
    """Compare tensors, and predictions layer by layer, with those of the base file."""
    base, file = subject.base, subject.file
    if base is None:
        return
    pairs = {name: (tensor, base.tensors[name]) for name, tensor in file.tensors.items() if name in base.tensors}
    if missing := sorted(set(file.tensors) ^ set(base.tensors)):
        yield Finding("error", missing[0], "is in only one of the two files: the base is another model")
        return
    if wrong := next((name for name, (one, other) in pairs.items() if one.shape != other.shape), None):
        yield Finding("error", wrong, "has another shape in the base, which is another model")
        return
    changed = {name: pair for name, pair in pairs.items() if len(pair[0].shape) > 1 and pair[0].type != pair[1].type}
    losses = {name: _loss(subject, *pair) for name, pair in changed.items()}
    for name, loss in losses.items():
        if loss.reference and loss.error > LARGEST_LOSS * loss.reference:
            needed = f"{100 * loss.reference:.1f} % of quantizing to {file.tensors[name].type.name}"
            yield Finding("error", name, f"differs from the base by {100 * loss.error:.1f} % instead of the {needed}")
    worst = sorted(losses, key=lambda name: -losses[name].error)[:MOST_SHOWN]
    shown = ", ".join(f"{name} {100 * losses[name].error:.1f} %" for name in worst)
    yield Finding("note", "quantization", f"tensors that lose most: {shown or 'none, all have the types of the base'}")
    yield from _predictions(subject, {name: tensor for name, (tensor, _) in changed.items()})


def _loss(subject: Subject, tensor: ModelTensor, base: ModelTensor) -> Loss:
    values, original = (_some_rows(item) for item in (tensor, base))
    size = float(np.linalg.norm(original)) or 1.0
    quantizers, kind = subject.registry.quantizers, tensor.type.name
    reference = 0.0
    if kind in quantizers:
        try:
            blocks = quantizers[kind].quantize(original, None)
        except ValueError:  # the type needs an importance matrix
            blocks = None
        if blocks is not None:
            reference = float(np.linalg.norm(dequantize(blocks, tensor.type) - original)) / size
    return Loss(float(np.linalg.norm(values - original)) / size, reference)


def _some_rows(tensor: ModelTensor) -> NDArray[np.float32]:
    """Return some decoded rows, float32 [rows, columns]."""
    rows = tensor.data.reshape(-1, tensor.data.shape[-1])
    return dequantize(np.ascontiguousarray(rows[:: max(1, len(rows) // N_ROWS)]), tensor.type)


def _predictions(subject: Subject, changed: Mapping[str, ModelTensor]) -> Iterator[Finding]:
    """Measure the divergence from the base of the file, and of the base with one layer of the file."""
    with subject.load(file=subject.base) as model:
        ids = model.tokenizer.tokenize(subject.text)[:N_TOKENS]
        if not model.facts.generates:
            return
        expected = log_softmax(model.logits(ids))
    with subject.load() as model:
        whole = _divergence(expected, log_softmax(model.logits(ids)))
    groups: dict[str, dict[str, ModelTensor]] = {}
    for name, tensor in changed.items():
        layer = OF_LAYER.fullmatch(name)
        groups.setdefault(f"blk.{layer['layer']}" if layer else name, {})[name] = tensor
    divergences: dict[str, float] = {}
    for done, (group, tensors) in enumerate(groups.items()):
        subject.progress(done, len(groups))
        with subject.load(Variant(tensors=tensors), subject.base) as model:
            divergences[group] = _divergence(expected, log_softmax(model.logits(ids)))
    worst = sorted(divergences, key=lambda group: -divergences[group])[:MOST_SHOWN]
    shown = ", ".join(f"{group} {divergences[group]:.2g}" for group in worst)
    by_layer = f"; with one layer of it alone: {shown}" if shown else ""
    yield Finding("note", "quantization", f"mean KL divergence from the base {whole:.2g}{by_layer}")


def _divergence(expected: NDArray[np.float32], actual: NDArray[np.float32]) -> float:
    """Return the mean Kullback-Leibler divergence of ``actual`` from ``expected`` in nats."""
    return float((np.exp(expected) * (expected - actual)).sum(axis=1, dtype=np.float64).mean())
