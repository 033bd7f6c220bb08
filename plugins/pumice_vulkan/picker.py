"""Multi-step decoding on the device: the best logits, and the selection of the next step's token."""

from __future__ import annotations

import math
from enum import Enum
from typing import NamedTuple

import numpy as np

from pumice.plugin import N_OUTPUTS, N_TOKENS, Tensor
from pumice.plugin.unstable import Ahead, Raw, Segment
from pumice_vulkan.device import Encoder
from pumice_vulkan.lower.rule import Lowering, SegmentMemory
from pumice_vulkan.memory import BufferSlice
from pumice_vulkan.restrictions import MAX_ADDED, Restrictions
from pumice_vulkan.step import MAX_BIASES, MAX_PAST, MAX_STEPS, SIZE_WORDS, SLOT_WORDS, most_drafted

OF_EACH = 16  # logits per invocation of shaders/best.comp
MAX_BEST = 64
MAX_SAVED = MAX_BIASES + MAX_PAST + MAX_ADDED  # maximum logits per row changed by shaders/adjust.comp
TAKEN = 128  # tokens per workgroup of shaders/take.comp
NO_DRAFT = 2**32 - 1  # of shaders/pick.comp: picked tokens are the latest of their slots
INVOCATIONS = 512  # invocations per workgroup, within the device's limit


class GoesOn(Enum):
    """The position of the next of several steps, as in shaders/pick.comp."""

    NOWHERE = 0
    HERE = 1
    NEXT = 2

    @staticmethod
    def of(segment: Segment) -> GoesOn:
        """Return where the steps of a segment go on."""
        return GoesOn.NOWHERE if segment.block else GoesOn.HERE if segment.loop and segment.stays else GoesOn.NEXT


class Choice(NamedTuple):
    """The processing of a step's logits, which returns ``n_best`` candidates: 1 or MAX_BEST.

    Attributes:
        adjusts: adjust the logits first.
        restricted: apply a restriction, too.
        raw: also return the most probable tokens before adjustments.
        drafted: rows of each sequence whose drafted tokens are verified; 0: none are.
    """

    n_best: int
    adjusts: bool = False
    restricted: bool = False
    raw: bool = False
    drafted: int = 0

    @property
    def words(self) -> int:
        """Words per row of the result: token and candidates; with ``raw`` also the token's logit, the sum, the best."""
        return 1 + 2 * self.n_best + (2 + 2 * MAX_BEST if self.raw else 0)


NO_CHOICE = Choice(n_best=0)
PLAIN = Choice(1)  # the best logit as it is


class Picker:
    """The processing of ``logits`` behind each step, and the results of all steps in host memory.

    Results are double-buffered: one buffer is read while the device writes the other. A step that ``goes_on`` nowhere
    may pick more tokens than one of each sequence.
    """

    def __init__(self, memory: SegmentMemory, logits: Tensor, goes_on: GoesOn) -> None:
        self.logits = logits
        self._goes_on = goes_on
        self._width = int(logits.shape[1])
        self._invocations = min(INVOCATIONS, memory.device.description.max_threads_per_threadgroup)
        self._n_parts = -(-self._width // (OF_EACH * self._invocations))
        self._max_seqs = memory.limits.n_seqs
        self._most_drafted = most_drafted(memory.limits)
        self._max_rows = max(self._max_seqs, self._most_drafted)
        self._most_drafting = memory.layout.most_drafting
        n_parts = self._max_rows * self._n_parts
        self._best = memory.scratch.take("best logits", 8 * n_parts * MAX_BEST)
        self._sums = memory.scratch.take("sums of logits", 4 * n_parts)
        self._saved = memory.scratch.take("adjusted logits", 8 * self._max_rows * MAX_SAVED)
        self._picked = memory.scratch.take("picked tokens", 4 * self._max_rows)
        self.registers = registers_of(memory)
        self.restrictions = Restrictions(memory.device, self._max_rows, self._width)
        self._taken_at = MAX_STEPS * self._max_rows * Choice(MAX_BEST, raw=True).words
        n_bytes = 4 * (self._taken_at + MAX_STEPS * self._most_drafting)
        self._results = [memory.device.new_buffer(n_bytes, host=True) for _ in range(2)]

    def lower(
        self,
        lowering: Lowering,
        step: int,
        choice: Choice,
        turn: int,
        best: BufferSlice | None = None,
        first_draft: int | None = None,
    ) -> None:
        """Append dispatches behind those of step number ``step``.

        Args:
            lowering: collects the dispatches.
            step: number of the step.
            choice: the processing of its logits.
            turn: index of the results' buffer.
            best: the best logit of each part, if the step stored them.
            first_draft: the draft of its slot that the token of step 0 becomes; None: it is the latest token.
        """
        rows = self._rows(lowering.n_outputs, choice)
        result = BufferSlice(self._results[turn], step * rows * choice.words, rows * choice.words)
        if choice.raw:
            self._find_best(lowering, rows, MAX_BEST, sums=True)
            self._give_likeliest(lowering, rows, choice, result)
        if choice.adjusts or choice.restricted:
            self._adjust(lowering, rows, choice)
        if choice._replace(drafted=0) != PLAIN:
            best = None
        if best is None:
            self._find_best(lowering, rows, choice.n_best, restricted=choice.restricted)
        draft = NO_DRAFT if first_draft is None else first_draft + step
        self._pick(lowering, rows, choice, step, result, best, draft)
        if choice.drafted:
            n_words = self._most_drafting
            taken = BufferSlice(self._results[turn], self._taken_at + step * n_words, n_words)
            self._verify(lowering, choice, taken)

    def _verify(self, lowering: Lowering, choice: Choice, taken: BufferSlice) -> None:
        """Append the dispatch that verifies the drafted tokens of a step."""
        layout = lowering.memory.layout
        lowering.dispatch(
            "verify",
            count=self.logits,
            reads={"picked": self._picked},
            writes={"taken": taken, "registers": self.registers},
            push={
                "tokens": layout.tokens,
                "positions": layout.positions,
                "text_length": layout.text_length,
                "n_picked": layout.n_picked,
                "n_taken": layout.n_taken,
                "past": layout.past,
                "past_counts": layout.past_counts,
                "most_past": MAX_PAST,
                "slot_ids": layout.slots,
                "n_slots": lowering.limits.n_seqs,
            },
            constants=[choice.drafted],
            grid=(self._rows(lowering.n_outputs, choice) // choice.drafted, 1, 1),
        )

    def record_restrictions(self, encoder: Encoder, n_outputs: int, choice: Choice, turn: int) -> None:
        """Record the copy of the restrictions of a step to the device."""
        self.restrictions.record(encoder, self._rows(n_outputs, choice), turn)

    def results(self, turn: int, n_steps: int, choice: Choice, n_outputs: int) -> Ahead:
        """Return a copy of the results of ``n_steps`` steps, lowered for ``n_outputs`` rows."""
        shape, n_best = (n_steps, self._rows(n_outputs, choice), choice.words), choice.n_best
        words = self._results[turn].contents[: 4 * math.prod(shape)].copy().view(np.int32).reshape(shape)
        floats, end = words.view(np.float32), 1 + 2 * n_best
        raw = None
        if choice.raw:
            ids, logits = words[..., end + 2 : -MAX_BEST], floats[..., -MAX_BEST:]
            raw = Raw(ids, logits, floats[..., end], floats[..., end + 1])
        contents = self._results[turn].contents.view(np.int32)
        taken = contents[self._taken_at :][: n_steps * self._most_drafting].reshape(n_steps, -1)
        n_taken = taken.copy() if choice.drafted else None
        return Ahead(words[..., 1 : 1 + n_best], floats[..., 1 + n_best : end], words[..., 0], raw, n_taken)

    def close(self) -> None:
        self.restrictions.close()
        for buffer in self._results:
            buffer.close()

    def _adjust(self, lowering: Lowering, rows: int, choice: Choice) -> None:
        layout = lowering.memory.layout
        lowering.dispatch(
            "adjust",
            count=self.logits,
            reads={"r": self.restrictions.place},
            writes={"x": lowering.place(self.logits), "saved": self._saved},
            push={
                "width": self._width,
                "stride": self.restrictions.stride if choice.restricted else 0,
                "adjustments": layout.adjustments,
                "biases": layout.biases,
                "past": layout.past,
                "past_counts": layout.past_counts,
                "drafts": layout.tokens,
            },
            constants=[MAX_PAST, MAX_BIASES, MAX_ADDED, int(choice.raw), choice.drafted],
            grid=(rows, 1, 1),
        )

    def _find_best(
        self, lowering: Lowering, rows: int, n_best: int, restricted: bool = False, sums: bool = False
    ) -> None:
        lowering.dispatch(
            "best",
            count=self.logits,
            reads={"x": lowering.place(self.logits), "r": self.restrictions.place},
            writes={"y": self._best, "sums": self._sums},
            push={
                "width": self._width,
                "stride": self.restrictions.stride if restricted else 0,
                "mask": self.restrictions.mask,
            },
            constants=[*self._constants(n_best), int(sums), OF_EACH],
            grid=(self._n_parts, rows, 1),
        )

    def _give_likeliest(self, lowering: Lowering, rows: int, choice: Choice, result: BufferSlice) -> None:
        begin = 2 + 2 * choice.n_best
        lowering.dispatch(
            "likeliest",
            count=self.logits,
            reads={"x": self._best, "sums": self._sums},
            writes={"y": result.part(begin, result.size - begin)},
            push={"n_parts": self._n_parts, "stride": choice.words},
            constants=self._constants(MAX_BEST),
            grid=(rows, 1, 1),
        )

    def _pick(
        self,
        lowering: Lowering,
        rows: int,
        choice: Choice,
        step: int,
        result: BufferSlice,
        best: BufferSlice | None,
        draft: int,
    ) -> None:
        layout = lowering.memory.layout
        saves = choice.raw and (choice.adjusts or choice.restricted)
        lowering.dispatch(
            "pick",
            count=self.logits,
            reads={"x": best or self._best, "logits": lowering.place(self.logits), "saved": self._saved},
            writes={"y": result, "picked": self._picked, "registers": self.registers},
            push={
                "n_parts": best.size // (2 * rows) if best else self._n_parts,
                "width": self._width,
                "n_saved": MAX_SAVED if saves else 0,
                "stride": choice.words,
                "tokens": layout.tokens,
                "positions": layout.positions,
                "picks": layout.picks,
                "numbers": layout.numbers + (0 if choice.drafted else step * layout.max_seqs),
                "past": layout.past,
                "past_counts": layout.past_counts,
                "n_picked": layout.n_picked,
                "most_past": MAX_PAST,
                "output_ids": layout.output_ids,
                "sequences": layout.sequences,
                "slot_ids": layout.slots,
                "n_slots": lowering.limits.n_seqs,
                "draft": draft,
            },
            constants=[
                *self._constants(choice.n_best),
                int(choice.raw),
                choice.drafted,
                MAX_STEPS * choice.drafted,
                self._goes_on.value,
            ],
            grid=(rows, 1, 1),
        )

    def _constants(self, n_best: int) -> list[int]:
        return [self._invocations, n_best]

    def _rows(self, n_outputs: int, choice: Choice) -> int:
        if choice.drafted:
            return min(n_outputs, self._most_drafted)
        return min(n_outputs, self._max_rows if self._goes_on is GoesOn.NOWHERE else self._max_seqs)


def registers_of(memory: SegmentMemory) -> BufferSlice:
    """Return the registers of all slots, which the programs of a device share."""
    return memory.scratch.take("registers of slots", 4 * SLOT_WORDS * memory.limits.n_seqs)


def lower_taken(lowering: Lowering, relative: bool) -> None:
    """Append the dispatch that fills a step from registers; ``relative``: positions count from those of the slots."""
    layout = lowering.memory.layout
    lowering.dispatch(
        "take",
        count=lowering.n_tokens,
        reads={"registers": registers_of(lowering.memory)},
        writes={},
        push={
            "n_tokens": SIZE_WORDS[N_TOKENS],
            "n_outputs": SIZE_WORDS[N_OUTPUTS],
            "tokens": layout.tokens,
            "positions": layout.positions,
            "output_ids": layout.output_ids,
            "seq_starts": layout.seq_starts,
            "sequences": layout.sequences,
            "slot_ids": layout.slots,
        },
        constants=[int(relative)],
        grid=(-(-lowering.n_tokens // TAKEN), 1, 1),
    )


def lower_later_positions(lowering: Lowering, place: BufferSlice, added: int) -> None:
    """Append the dispatch that computes an input: the positions of a step plus a number."""
    lowering.dispatch(
        "later_positions",
        count=lowering.n_tokens,
        reads={},
        writes={"y": place},
        push={"positions": lowering.memory.layout.positions, "added": added},
        grid=(-(-lowering.n_tokens // TAKEN), 1, 1),
    )
