"""Multi-step decoding on the device: the best of the logits, and of them the token that the next step computes."""

from __future__ import annotations

import math

import numpy as np

from pumice.plugin import Ahead, Tensor
from pumice_vulkan.lower.rule import Lowering, Memory
from pumice_vulkan.memory import Place
from pumice_vulkan.step import MAX_BIASES, MAX_PAST, MAX_STEPS

SLOTS = 2048  # logits of a workgroup, as in shaders/best.glsl
MAX_BEST = 64
INVOCATIONS = 512  # of a workgroup, where the device has so many


class Picker:
    """What comes behind a step's logits, and the results of all steps in memory of the host.

    It is there twice: one is read while the device writes the other.
    """

    def __init__(self, memory: Memory, logits: Tensor) -> None:
        self._logits = logits
        self._n_parts = -(-int(logits.shape[1]) // SLOTS)
        self._max_seqs = memory.limits.n_seqs
        self._best = memory.scratch.take(8 * self._max_seqs * self._n_parts * MAX_BEST)
        n_bytes = 4 * MAX_STEPS * self._max_seqs * _result_words(MAX_BEST)
        self._results = [memory.device.new_buffer(n_bytes, host=True) for _ in range(2)]

    def lower(self, at: Lowering, step: int, n_best: int, adjusts: bool, turn: int) -> None:
        """Behind the dispatches of step number ``step``; ``n_best`` is 1 or MAX_BEST."""
        rows, layout = self._rows(at.n_outputs), at.memory.layout
        width = int(self._logits.shape[1])
        if adjusts:
            at.dispatch(
                "adjust",
                count=self._logits,
                reads={},
                writes={"x": at.place(self._logits)},
                push={
                    "width": width,
                    "adjustments": layout.adjustments,
                    "biases": layout.biases,
                    "past": layout.past,
                    "past_counts": layout.past_counts,
                },
                constants=[MAX_PAST, MAX_BIASES],
                grid=(rows, 1, 1),
            )
        constants = [min(INVOCATIONS, at.device.description.max_threads_per_threadgroup), n_best]
        at.dispatch(
            "best",
            count=self._logits,
            reads={"x": at.place(self._logits)},
            writes={"y": self._best},
            push={"width": width},
            constants=constants,
            grid=(self._n_parts, rows, 1),
        )
        words = rows * _result_words(n_best)
        at.dispatch(
            "pick",
            count=self._logits,
            reads={"x": self._best},
            writes={"y": Place(self._results[turn], step * words, words)},
            push={
                "n_parts": self._n_parts,
                "tokens": layout.tokens,
                "positions": layout.positions,
                "picks": layout.picks,
                "numbers": layout.numbers + step * layout.max_seqs,
                "past": layout.past,
                "past_counts": layout.past_counts,
                "most_past": MAX_PAST,
            },
            constants=constants,
            grid=(rows, 1, 1),
        )

    def results(self, turn: int, n_steps: int, n_best: int, n_outputs: int) -> Ahead:
        """A copy of what was found in so many steps, lowered for ``n_best`` candidates and ``n_outputs`` rows."""
        shape = n_steps, self._rows(n_outputs), _result_words(n_best)
        words = self._results[turn].contents[: 4 * math.prod(shape)].copy().view(np.int32).reshape(shape)
        return Ahead(words[..., 1 : 1 + n_best], words[..., 1 + n_best :].view(np.float32), words[..., 0])

    def close(self) -> None:
        for buffer in self._results:
            buffer.close()

    def _rows(self, n_outputs: int) -> int:
        return min(n_outputs, self._max_seqs)


def _result_words(n_best: int) -> int:
    return 1 + 2 * n_best
