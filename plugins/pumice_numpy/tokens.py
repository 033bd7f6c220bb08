"""Division of a step into steps of one token, since matrix products of other shapes add up in another order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.plugin import N_OUTPUTS, N_SEQS, N_TOKENS, Tensor
from pumice.plugin.unstable import Batch, KVState, Node, Segment

Arrays = Mapping[str, NDArray[Any]]


def can_cut(segment: Segment) -> bool:
    """Return True if each token depends only on itself and on states left by earlier tokens of its sequence."""
    return all(_goes_forward(node) for node in segment.nodes)


def _goes_forward(node: Node) -> bool:
    if node.op == "attention":
        return isinstance(node.state, KVState) and not node.state.is_memory and bool(node.attrs["causal"])
    return node.output.shape[0] in (N_TOKENS, N_OUTPUTS) and node.op != "tap"


def single_tokens(batch: Batch, tensors: list[Tensor], inputs: Arrays) -> Iterator[tuple[Batch, Arrays]]:
    """Yield a batch and the inputs for each token of a batch."""
    outputs = {int(row): i for i, row in enumerate(batch.output_ids)}
    for seq, (start, end) in enumerate(zip(batch.seq_starts[:-1], batch.seq_starts[1:], strict=True)):
        for row in range(start, end):
            output_rows = [outputs[row]] if row in outputs else []
            single = Batch(
                tokens=batch.tokens[row : row + 1],
                positions=batch.positions[row : row + 1],
                output_ids=np.zeros(len(output_rows), np.int32),
                seq_starts=np.array([0, 1], np.int32),
                slots=batch.slots[seq : seq + 1],
                block_tables={window: table[seq : seq + 1] for window, table in batch.block_tables.items()},
                more_sizes=batch.more_sizes,
            )
            chosen = {N_TOKENS: [row], N_SEQS: [seq], N_OUTPUTS: output_rows}
            its = {tensor.name: _rows(inputs[tensor.name], chosen.get(str(tensor.shape[0]))) for tensor in tensors}
            yield single, its | ({"output_ids": single.output_ids} if "output_ids" in its else {})


def _rows(array: NDArray[Any], rows: list[int] | None) -> NDArray[Any]:
    return array if rows is None else array[rows]


def joined(tensor: Tensor, parts: Sequence[Arrays], batch: Batch) -> NDArray[Any]:
    """Join an output of all tokens in batch order; rows of logits in the order of ``output_ids``."""
    rows = np.concatenate([part[tensor.name] for part in parts])
    return rows[np.argsort(np.argsort(batch.output_ids))] if tensor.shape[0] == N_OUTPUTS else rows
