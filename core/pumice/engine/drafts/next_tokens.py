"""Layers that predict further tokens from a model's hidden states, as a proposer: its own (MTP), or a draft model's.

The layer computes, at the position of a token, from that token and the hidden state of the position before it, the
logits of the next token and a hidden state to continue from (DeepSeek-V3, arXiv:2412.19437, section 2.2). Its KV cache
lies in the blocks of the sequence, so it is shared with equal prefixes. EAGLE-3 (arXiv:2503.01840) projects the inputs
of several layers of the model to that hidden state first. Gemma 4's assistant has no cache: it reads the model's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import DRAFT, FEATURES, MAIN, STREAM
from pumice.backend.step import LATEST, Batch, Limits, draft_of_slot
from pumice.engine.cache.blocks import BlockTables
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.drafts.drafter import Drafter, DraftLimits, Guess, guess_of, quiet, rehearsing
from pumice.engine.placement.runner import Runner
from pumice.engine.requests.batches import Part, Place, batch_after, batch_behind
from pumice.engine.requests.generation import Generation

MOST_WAITING = 64  # hidden states of a sequence that wait until it drafts
Rows = NDArray[np.float32]


@dataclass(eq=False)
class Hidden:
    """The rows ``[n, n_stream]`` of a sequence from a position on, for which the layer did not run yet.

    The layer knows nothing of the ``n_skipped`` first blocks: its sequence begins after them. It has run for the first
    ``n_read`` rows.
    """

    tables: BlockTables
    first: int
    parts: list[Rows] = field(repr=False)
    n_skipped: int = 0
    n_read: int = 0
    n_rows: int = field(init=False)

    def __post_init__(self) -> None:
        self.n_rows = sum(map(len, self.parts))

    @property
    def end(self) -> int:
        return self.first + self.n_rows

    @property
    def rows(self) -> Rows:
        """All rows; they are joined when they are read."""
        if len(self.parts) > 1:
            self.parts = [np.concatenate(self.parts)]
        return self.parts[0]

    def append(self, rows: Rows) -> None:
        self.parts.append(rows)
        self.n_rows += len(rows)

    def drop(self, n: int) -> None:
        """Forget the first ``n`` rows."""
        self.n_read = max(0, self.n_read - n)
        self.parts = [self.rows[n:].copy()]
        self.first, self.n_rows = self.first + n, self.n_rows - n


class HiddenStates:
    """The hidden states of all sequences.

    The state before the first position, or before the end of a cached prefix, is unknown, and replaced by zeros; that
    affects proposals only. Behind steps that were not heard, states are kept from the next block on, as if the text
    began there.

    Args:
        limits: the steps of the model.
        n_before: states before the first position that the layer reads: 1, or 0.
        skips: False if the layer has no cache, so that it needs no blocks of its own.
    """

    def __init__(self, limits: Limits, n_before: int = 1, skips: bool = True) -> None:
        self._limits = limits
        self._n_before = n_before
        self._skips = skips
        self._of: WeakKeyDictionary[Place, Hidden] = WeakKeyDictionary()

    def __getitem__(self, running: Generation) -> Hidden:
        return self._of[running]

    def __len__(self) -> int:
        return len(self._of)

    def known(self, running: Generation) -> bool:
        """Return True if the states of a sequence are known up to that before its last token."""
        kept = self._of.get(running)
        return kept is not None and kept.tables is running.tables and kept.end == len(running.tokens) - 1

    def n_skipped(self, place: Place) -> int:
        """Return the number of first blocks of a sequence of which the layer knows nothing."""
        kept = self._of.get(place)
        return kept.n_skipped if kept else 0

    def keep(self, running: Generation, first: int, rows: Rows) -> None:
        """Keep the states of positions from ``first`` on; those computed again after a wrong draft are kept already."""
        kept = self._of.get(running)
        if kept is None or kept.tables is not running.tables or first > kept.end or self._begins_later(kept, first):
            n_skipped = self._skipped(running, first)
            first_kept = max(first, n_skipped * self._limits.block_size) - self._n_before
            unknown = np.zeros((self._n_before, rows.shape[1]), np.float32)
            kept = self._of[running] = Hidden(running.tables, first_kept, [unknown], n_skipped)
        if first + len(rows) > kept.end:
            kept.append(rows[kept.end - first :])

    def most_waiting(self) -> int:
        """Return the maximum number of states of a sequence that wait.

        They lie within all attention windows, since blocks outside of a window belong to other sequences.
        """
        limits = self._limits
        in_windows = (window - 1 for window in limits.n_blocks if window)
        return max(1, min(MOST_WAITING, limits.n_batch // limits.n_seqs, *in_windows))

    def went_on(self, sequences: Collection[Generation], lost: Collection[Generation]) -> None:
        """Note that the layer has read all states that it needs for the last token, except of ``lost`` sequences."""
        for running in sequences:
            kept = self._of.get(running)
            if running in lost:
                self._of.pop(running, None)
            elif kept is not None:
                first = len(running.tokens) - 1 - self._n_before
                unknown = np.zeros((self._n_before, kept.rows.shape[1]), np.float32)
                self._of[running] = Hidden(running.tables, first, [unknown], kept.n_skipped, n_read=self._n_before)

    def drop(self, running: Generation) -> None:
        """Forget a sequence."""
        self._of.pop(running, None)

    def clear(self) -> None:
        """Forget all sequences."""
        self._of.clear()

    def _begins_later(self, kept: Hidden, first: int) -> bool:
        """Return True if a sequence was to begin at a block behind ``first``, which is computed again."""
        return first < kept.end == kept.n_skipped * self._limits.block_size

    def _skipped(self, running: Generation, first: int) -> int:
        """Return the number of blocks before which the layer did not run: none if ``first`` is behind cached tokens."""
        is_cached = first <= running.timings.prompt_cached
        return -(-first // self._limits.block_size) if self._skips and not is_cached else 0


class NextTokens(Drafter):
    """Runs the drafting layer of a model, or of its draft model, for its sequences.

    Attributes:
        cache: the engine's, once there is one.
        is_off: True once the layer could not be compiled.
    """

    n_before = 1
    """Hidden states before the first position that the layer reads."""
    has_cache = True
    """True if the layer stores keys and values of its own."""

    def __init__(self, runner: Runner, limits: DraftLimits) -> None:
        self.cache: KVCache | None = None
        self.is_off = False
        self._runner = runner
        self._limits = limits
        self._projects = bool(runner.model.results(FEATURES))
        self.name = "draft" if self._projects or not self.has_cache else "mtp"
        self._hidden = HiddenStates(runner.limits, self.n_before, self.has_cache)

    def rehearse(self, n: int) -> None:
        assert self.cache is not None
        with rehearsing(self.cache, 2 + n) as place:
            if place is not None:
                batch = self._batch([Part(place, [0], 1, [0])])
                hidden = self._hidden_of(batch, row_of_zeros(self._runner))
                for i in range(n):
                    batch = self._batch([Part(place, [0], 1 + i, [0])])
                    hidden = np.array(self._outputs(batch, DRAFT, hidden=hidden)["hidden"])

    # --- hidden states of the model

    def landed(self, batch: Batch, index: int, running: Generation, stream: Rows) -> None:
        """Keep the rows of ``stream [n_tokens, n_stream]`` of the confirmed tokens of one sequence of a step."""
        if self.is_off or running.finish_reason:
            return
        begin, end = (int(start) for start in batch.seq_starts[index : index + 2])
        first, computed = int(batch.positions[begin]), batch.tokens[begin:end]
        tokens = np.asarray(running.tokens[first : first + len(computed)], np.int32)
        equal = computed[: len(tokens)] == tokens
        n = len(tokens) if equal.all() else int(equal.argmin())
        self._hidden.keep(running, first, stream[begin : begin + n])
        self._read_waiting(running)

    def knows(self, running: Generation) -> bool:
        """Return True if the hidden states of a sequence are known up to that before its last token."""
        return self._hidden.known(running)

    def misses(self, running: Generation) -> bool:
        """Return True if the layer may draft for a sequence once it knows its latest hidden states."""
        return not self.is_off and not self.knows(running)

    def drop(self, running: Generation) -> None:
        self._hidden.drop(running)

    def _read_waiting(self, running: Generation) -> None:
        """Run the layer for hidden states of a sequence that wait, if there are many, but for the last."""
        kept = self._hidden[running]
        while kept.n_rows > self._hidden.most_waiting():
            n = min(kept.n_rows - 1, self._runner.limits.n_batch)
            self._read([self._part(running, kept, n, False)], kept.rows[:n])
            kept.drop(n)

    def _read(self, parts: Sequence[Part], rows: Rows) -> None:
        """Run the layer for rows of the stream, without guesses."""
        batch = self._batch(parts)
        self._outputs(batch, DRAFT, hidden=self._hidden_of(batch, rows))

    def _part(self, running: Generation, kept: Hidden, n: int, is_last: bool) -> Part:
        """Return the next ``n`` tokens of the layer, each behind the position of its hidden state."""
        begin = kept.first + 1
        return Part(running, running.tokens[begin : begin + n], begin, [n - 1] if is_last else [])

    def _hidden_of(self, batch: Batch, rows: Rows) -> Rows:
        """Return the hidden states ``[n, n_embd]`` that the layer reads for rows ``[n, n_stream]`` of the stream."""
        if not self._projects:
            return rows
        whole = replace(batch, output_ids=np.arange(len(batch.tokens), dtype=np.int32))
        return np.array(self._outputs(whole, FEATURES, features=rows)["hidden"])

    def _batch(self, parts: Sequence[Part], before: Batch | None = None) -> Batch:
        """Return the batch of these tokens; they may be the next ones of all sequences ``before``, or of some.

        The sequence of the layer begins after the blocks that it does not know.
        """
        assert self.cache is not None
        later = []
        for part in parts:
            n = self._hidden.n_skipped(part.place)
            place = Place(part.place.slot, part.place.tables.after(n)) if n else part.place
            later.append(part._replace(place=place, n_past=part.n_past - n * self._runner.limits.block_size))
        is_next = before is not None and len(before.slots) == len(parts)
        return batch_after(before, later) if before is not None and is_next else batch_behind(self.cache, later)

    def _outputs(self, batch: Batch, graph: str, **inputs: Rows) -> Mapping[str, Rows]:
        """Return the outputs of a graph. If it cannot be compiled, the layer is off from then on."""
        batch.inputs = {name: np.ascontiguousarray(value, np.float32) for name, value in inputs.items()}
        try:
            return self._runner.outputs(batch, graph)
        except Exception:
            if not self._runner.is_compiled(graph):
                self.is_off = True
                self._hidden.clear()
            raise

    # --- proposals

    def propose(self, sequences: Sequence[Generation], n: Sequence[int]) -> list[Sequence[int]]:
        limits = [min(limit, self._limits.most) for limit in n]
        most = {item: limit for item, limit in zip(sequences, limits, strict=True) if self._holds(item, limit)}
        drafts = self._draft(most) if most else {}
        guesses = [drafts.get(running, []) for running in sequences]
        return [[guess.token for guess in own] if len(own) >= self._limits.least else [] for own in guesses]

    def _draft(self, most: Mapping[Generation, int]) -> dict[Generation, list[Guess]]:
        """Return the guesses for sequences, one step per token for all of them."""
        drafts: dict[Generation, list[Guess]] = {running: [] for running in most}
        parts, rows = self._waiting(list(most))
        going, batch = dict(zip(most, parts, strict=True)), self._batch(parts)
        hidden = self._hidden_of(batch, rows)
        while True:
            outputs = self._outputs(batch, DRAFT, hidden=hidden)
            following: dict[Generation, Part] = {}
            taken = []
            for row, (running, part) in enumerate(going.items()):
                guess = guess_of(outputs["logits"][row])
                if guess.probability < self._limits.p_min:
                    continue
                drafts[running].append(guess)
                if len(drafts[running]) < most[running]:
                    following[running] = Part(running, [guess.token], self._next_position(part), [0])
                    taken.append(row)
            if not following:
                return drafts
            going, hidden = following, np.array(outputs["hidden"][taken])
            batch = self._batch(list(going.values()), batch)

    def _waiting(self, sequences: Sequence[Generation]) -> tuple[list[Part], Rows]:
        """Return the tokens that the layer has not read, and their rows of the stream; only the last row is kept."""
        waiting = [self._hidden[running] for running in sequences]
        for kept in waiting:
            kept.drop(min(kept.n_read, max(0, kept.n_rows - 1)))
        parts = [self._part(running, kept, kept.n_rows, True) for running, kept in zip(sequences, waiting, strict=True)]
        rows = np.ascontiguousarray(np.concatenate([kept.rows for kept in waiting]), np.float32)
        for kept in waiting:
            kept.drop(kept.n_rows - 1)
        return parts, rows

    def _next_position(self, part: Part) -> int:
        """Return the position of the token behind the last one of ``part``."""
        return part.n_past + len(part.tokens)

    def _holds(self, running: Generation, n: int) -> bool:
        """Return True if the hidden state before the last token is known, and there are blocks for ``n`` tokens."""
        assert self.cache is not None
        n_tokens = len(running.tokens)
        if n <= 0 or not self.knows(running):
            return False
        return self.cache.extend(running.tables, running.n_past, n_tokens - running.n_past + n)

    # --- rounds

    def submits(self, target: Runner) -> bool:
        """Return True if its steps pass their results to each other, too."""
        listening = self._runner.model.listening
        if self.is_off or listening in (None, MAIN) or not self._longest_round:
            return False
        graphs = [listening, DRAFT, *([FEATURES] if self._projects else [])]
        return self._runner.passes_on(graphs) is not None

    @property
    def _longest_round(self) -> int:
        """The maximum drafted tokens of a round, all of which but the first are steps of one submission; 0: none."""
        n_steps = self._runner.capabilities_of(DRAFT).max_steps
        return min(self._limits.most, 1 + n_steps) if n_steps else 0

    def holds(self, sequences: Sequence[Generation], n: int) -> bool:
        return n <= self._longest_round and all(self._holds(running, n) for running in sequences)

    def submit(self, sequences: Sequence[Generation], n: int) -> None:
        parts, rows = self._waiting(sequences)
        for running in sequences:
            self._hidden[running].n_read = 1
        self._submit_parts(parts, rows, n)

    def submit_after(self, sequences: Sequence[Generation], n: int, n_drafted: int) -> None:
        """Let the layer read what that step computes, and draft behind the latest of its tokens.

        ``landed`` is called for no such step, but ``went_on`` once it has ended.
        """
        tokens = [draft_of_slot(i) for i in range(1 + n_drafted)]
        parts = [Part(running, tokens, running.n_past + self._first_behind, [0]) for running in sequences]
        self._submit_parts(parts, None, n)

    def holds_after(self, sequences: Sequence[Generation], n_drafted: int) -> bool:
        return True

    def went_on(self, sequences: Collection[Generation], lost: Collection[Generation]) -> None:
        self._hidden.went_on(sequences, lost)

    def _submit_parts(self, parts: Sequence[Part], stream: Rows | None, n: int) -> None:
        """Submit steps that draft ``n`` tokens behind each part, for rows of the stream.

        None: for those of the latest step, and the output row of a sequence is that of its latest token.
        """
        batch, listening, n_seqs = self._batch(parts), self._runner.model.listening, len(parts)
        assert listening is not None
        n_rows = len(batch.tokens)
        reads = batch
        if self._projects:
            reads = replace(batch, output_ids=np.arange(n_rows, dtype=np.int32))
        name = "features" if self._projects else "hidden"
        if stream is None:
            batch.output_ids = np.full(n_seqs, LATEST, np.int32)
            reads.passed = {name: self._runner.passed(listening, STREAM, n_rows)}
        else:
            reads.inputs = {name: stream}
        if self._projects:
            self._runner.submit(reads, graph=FEATURES)
            batch.passed = {"hidden": self._runner.passed(FEATURES, "hidden", n_rows)}
        self._runner.submit(batch, quiet(n_seqs, 1), graph=DRAFT)
        if n == 1:
            return
        positions = [self._behind_latest if stream is None else self._next_position(part) for part in parts]
        pairs = zip(parts, positions, strict=True)
        later = self._batch([Part(part.place, [draft_of_slot(0)], position, [0]) for part, position in pairs])
        later.relative = stream is None
        later.passed = {"hidden": self._runner.passed(DRAFT, "hidden", n_seqs)}
        self._runner.submit(later, quiet(n_seqs, n - 1, first_draft=1), graph=DRAFT)

    _first_behind = 1
    """Position of the first token that the layer reads behind a pending step, relative to that step's first."""
    _behind_latest = 1
    """Position of the tokens behind the first drafted one, relative to that of the latest token."""


class CachedTokens(NextTokens):
    """Runs a draft model that has no cache of its own, but reads that of its target model (Gemma 4's assistant).

    It computes each token at the last position of the model's cache, from the hidden state there or from its own for
    the token before. So it needs only the last hidden state of a sequence.
    """

    has_cache = False
    _first_behind = 0
    _behind_latest = -1

    def _read_waiting(self, running: Generation) -> None:
        kept = self._hidden[running]
        kept.drop(kept.n_rows - 1)

    def _part(self, running: Generation, kept: Hidden, n: int, is_last: bool) -> Part:
        return Part(running, running.tokens[kept.end :][:1], kept.end - 1, [0])

    def _next_position(self, part: Part) -> int:
        return part.n_past


def row_of_zeros(runner: Runner) -> Rows:
    """Return a row of the stream of zeros."""
    return np.zeros((1, runner.model.results(runner.model.listening or MAIN)[STREAM]), np.float32)
