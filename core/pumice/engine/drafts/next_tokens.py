"""Layers that predict further tokens from a model's hidden states, as a proposer: its own (MTP), or a draft model's.

The layer computes, at the position of a token, from that token and the hidden state of the position before it, the
logits of the next token and a hidden state to continue from (DeepSeek-V3, arXiv:2412.19437, section 2.2). Its KV cache
lies in the blocks of the sequence, so it is shared with equal prefixes. EAGLE-3 (arXiv:2503.01840) projects the inputs
of several layers of the model to that hidden state first. Gemma 4's assistant has no cache: it reads the model's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Self
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
from numpy.typing import NDArray

from pumice.architecture import DRAFT, FEATURES, MAIN, STREAM
from pumice.backend.step import LATEST, Batch, Pending, draft_of_slot
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.cache.tables import BlockTables
from pumice.engine.drafts.draft_steps import quiet, rehearsing
from pumice.engine.drafts.model import DraftLimits, Guess, greedy, guess_of, picked_guess, proposal_of
from pumice.engine.placement.runner import Runner
from pumice.engine.requests.batches import Part, Place, batch_after, batch_behind
from pumice.engine.requests.generation import Generation, Running
from pumice.proposers import Proposal, Proposer

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


class NextTokens:
    """Runs the drafting layer of a model, or of its draft model, for its sequences.

    The state before the first position, or before the end of a cached prefix, is unknown, and replaced by zeros; that
    affects proposals only. Behind steps that it did not hear, it keeps the states from the next block on, as if the
    text began there.

    Attributes:
        cache: the engine's, once there is one.
        is_off: True once the layer could not be compiled.
    """

    def __init__(self, runner: Runner, limits: DraftLimits) -> None:
        self.cache: KVCache | None = None
        self.is_off = False
        self._runner = runner
        self._limits = limits
        self._projects = bool(runner.model.results(FEATURES))
        self._hidden: WeakKeyDictionary[Place, Hidden] = WeakKeyDictionary()
        self._dropped: WeakSet[Generation] = WeakSet()

    @property
    def name(self) -> str:
        """The name of its proposer."""
        return "draft" if self._projects else "mtp"

    def proposer(self) -> NextTokensProposer:
        """Return the proposer of a new sequence."""
        return NextTokensProposer(self)

    def rehearse(self, n: int) -> None:
        """Draft ``n`` tokens behind a text of a few tokens, which belongs to no sequence."""
        assert self.cache is not None
        with rehearsing(self.cache, 2 + n) as place:
            if place is not None:
                width = self._runner.model.results(self._runner.model.listening or MAIN)[STREAM]
                batch = self._batch([Part(place, [0], 1, [0])])
                hidden = self._hidden_of(batch, np.zeros((1, width), np.float32))
                for i in range(n):
                    hidden = self._run(self._batch([Part(place, [0], 1 + i, [0])]), hidden)[1]

    def landed(self, batch: Batch, index: int, running: Running, stream: Rows) -> None:
        """Keep the rows of ``stream [n_tokens, n_stream]`` of the confirmed tokens of one sequence of a step.

        Does nothing for a sequence that was dropped.
        """
        if self.is_off or running.generation in self._dropped:
            return
        begin, end = (int(start) for start in batch.seq_starts[index : index + 2])
        first, computed = int(batch.positions[begin]), batch.tokens[begin:end]
        tokens = np.asarray(running.generation.tokens[first : first + len(computed)], np.int32)
        equal = computed[: len(tokens)] == tokens
        n = len(tokens) if equal.all() else int(equal.argmin())
        self._keep(running, first, stream[begin : begin + n])
        if not running.generation.finish_reason:
            self._limit(running)

    def knows(self, running: Running) -> bool:
        """Return True if the hidden states of a sequence are known up to that before its last token."""
        kept = self._hidden.get(running)
        return kept is not None and kept.tables is running.tables and kept.end == len(running.generation.tokens) - 1

    def misses(self, running: Running) -> bool:
        """Return True if the layer may draft for a sequence once it knows its latest hidden states."""
        return not self.is_off and running.generation not in self._dropped and not self.knows(running)

    def drop(self, running: Running) -> None:
        """Forget a sequence, which gets no more proposals."""
        self._hidden.pop(running, None)
        self._dropped.add(running.generation)

    def _keep(self, running: Running, first: int, rows: Rows) -> None:
        """Keep the states of positions from ``first`` on; those computed again after a wrong draft are kept already."""
        kept = self._hidden.get(running)
        if kept is None or kept.tables is not running.tables or first > kept.end or self._begins_later(kept, first):
            n_skipped = self._n_skipped(running, first)
            first_kept = max(first, n_skipped * self._runner.limits.block_size)
            kept = self._hidden[running] = self._unknown(running.tables, first_kept, rows.shape[1])
            kept.n_skipped = n_skipped
        if first + len(rows) > kept.end:
            kept.append(rows[kept.end - first :])

    def _begins_later(self, kept: Hidden, first: int) -> bool:
        """Return True if a sequence was to begin at a block behind ``first``, which is computed again."""
        return first < kept.end == kept.n_skipped * self._runner.limits.block_size

    def _n_skipped(self, running: Running, first: int) -> int:
        """Return the number of blocks before which the layer did not run: none if ``first`` is behind cached tokens."""
        is_cached = first <= running.generation.timings.prompt_cached
        return 0 if is_cached else -(-first // self._runner.limits.block_size)

    def _unknown(self, tables: BlockTables, first: int, n_stream: int) -> Hidden:
        """Return zeros as the hidden state before position ``first``, where no earlier one is known."""
        return Hidden(tables, first - 1, [np.zeros((1, n_stream), np.float32)])

    def _limit(self, running: Running) -> None:
        """Run the layer for hidden states of a sequence that wait, if there are many, but for the last."""
        kept = self._hidden[running]
        while kept.n_rows > self._most_waiting:
            n = min(kept.n_rows - 1, self._runner.limits.n_batch)
            self._read([self._part(running, kept, n, False)], kept.rows[:n])
            kept.drop(n)

    @property
    def _most_waiting(self) -> int:
        """The maximum number of hidden states of a sequence that wait.

        They lie within all attention windows, since blocks outside of a window belong to other sequences.
        """
        limits = self._runner.limits
        in_windows = (window - 1 for window in limits.n_blocks if window)
        return max(1, min(MOST_WAITING, limits.n_batch // limits.n_seqs, *in_windows))

    def _part(self, running: Running, kept: Hidden, n: int, is_last: bool) -> Part:
        """Return the next ``n`` tokens of the layer, each behind the position of its hidden state."""
        begin = kept.first + 1
        return Part(running, running.generation.tokens[begin : begin + n], begin, [n - 1] if is_last else [])

    def _read(self, parts: Sequence[Part], rows: Rows) -> None:
        """Run the layer for rows of the stream, without guesses."""
        batch = self._batch(parts)
        self._run(batch, self._hidden_of(batch, rows))

    def _hidden_of(self, batch: Batch, rows: Rows) -> Rows:
        """Return the hidden states ``[n, n_embd]`` that the layer reads for rows ``[n, n_stream]`` of the stream."""
        if not self._projects:
            return rows
        whole = replace(batch, output_ids=np.arange(len(batch.tokens), dtype=np.int32))
        return np.array(self._outputs(whole, FEATURES, features=rows)["hidden"])

    def _run(self, batch: Batch, hidden: Rows) -> tuple[list[Guess], Rows]:
        """Return the guess and the hidden state ``[n_outputs, n_embd]`` after each output row.

        A program that picks tokens returns no logits.
        """
        n_outputs = len(batch.output_ids)
        if n_outputs and self._runner.steps_of(DRAFT):
            pending = self._submit(batch, hidden, n_outputs, 1)
            ahead = next(pending.tokens())
            return [picked_guess(ahead, 0, row) for row in range(n_outputs)], np.array(pending.outputs()["hidden"])
        outputs = self._outputs(batch, DRAFT, hidden=hidden)
        return [guess_of(row) for row in outputs["logits"]], np.array(outputs["hidden"])

    def _run_ahead(self, batch: Batch, hidden: Rows, n_steps: int) -> list[list[Guess]]:
        """Return the guesses of consecutive steps for each sequence, whose tokens and states stay on the device."""
        n_seqs = len(batch.slots)
        ahead = next(self._submit(batch, hidden, n_seqs, n_steps).tokens())
        return [[picked_guess(ahead, step, row) for step in range(n_steps)] for row in range(n_seqs)]

    def _submit(self, batch: Batch, hidden: Rows, n_rows: int, n_steps: int) -> Pending:
        """Submit ``n_steps`` steps whose tokens the program picks, each with ``n_rows`` output rows."""
        batch.inputs = {"hidden": np.ascontiguousarray(hidden, np.float32)}
        return self._runner.submit(batch, greedy(n_rows, n_steps), graph=DRAFT)

    def _batch(self, parts: Sequence[Part], before: Batch | None = None) -> Batch:
        """Return the batch of these tokens; they may be the next ones of all sequences ``before``, or of some."""
        assert self.cache is not None
        later = [self._known(part) for part in parts]
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

    def _known(self, part: Part) -> Part:
        """Return the part of a sequence that begins after the blocks that the layer does not know."""
        kept = self._hidden.get(part.place)
        if kept is None or not kept.n_skipped:
            return part
        place = Place(part.place.slot, part.place.tables.after(kept.n_skipped))
        return part._replace(place=place, n_past=part.n_past - kept.n_skipped * self._runner.limits.block_size)

    def propose(self, sequences: Sequence[Running | None], n: Sequence[int]) -> list[Proposal]:
        """Return the proposals for sequences, of at most ``n[i]`` tokens each."""
        assert self.cache is not None
        most: dict[Running, int] = {}
        for running, limit in zip(sequences, n, strict=True):
            if running is not None and self._holds(running, k := min(limit, self._limits.most)):
                most[running] = k
        drafts = self._draft(most)
        return [self._proposal(drafts.get(running, [])) if running else Proposal() for running in sequences]

    def _draft(self, most: Mapping[Running, int]) -> dict[Running, list[Guess]]:
        """Return the guesses for sequences, one step per token for all of them; the last ones in one submission."""
        drafts: dict[Running, list[Guess]] = {running: [] for running in most}
        going, batch, hidden = self._first_parts(list(most))
        while going and batch is not None:
            lacking = {most[running] - len(drafts[running]) for running, _ in going}
            n_steps = self._n_steps([part for _, part in going], lacking)
            if n_steps > 1:
                for (running, _), row in zip(going, self._run_ahead(batch, hidden, n_steps), strict=True):
                    drafts[running] += takewhile(lambda guess: not self._limits.ends(guess), row)
                return drafts
            guesses, states = self._run(batch, hidden)
            following, rows = [], []
            for i, ((running, part), guess) in enumerate(zip(going, guesses, strict=True)):
                if self._limits.ends(guess):
                    continue
                drafts[running].append(guess)
                if len(drafts[running]) < most[running]:
                    following.append((running, self._behind(part, running, guess.token)))
                    rows.append(i)
            going, hidden = following, states if len(rows) == len(states) else states[rows]
            batch = self._batch([part for _, part in going], batch) if going else None
        return drafts

    def submits(self) -> bool:
        """Return True if its steps pass their results to each other, and to steps of the model, on the device."""
        listening = self._runner.model.listening
        if self.is_off or listening in (None, MAIN) or not self._drafts_in_rounds:
            return False
        graphs = [listening, DRAFT, *([FEATURES] if self._projects else [])]
        return self._runner.passes_on(graphs) is not None

    @property
    def _drafts_in_rounds(self) -> bool:
        """True if the program picks the tokens of a round by itself."""
        return self._runner.steps_of(DRAFT) > 0

    @property
    def _longest_round(self) -> int:
        """The maximum drafted tokens of a round, all of which but the first are steps of one submission."""
        return min(self._limits.most, 1 + self._runner.steps_of(DRAFT))

    def holds(self, sequences: Sequence[Running], n: int) -> bool:
        """Return True if the layer can draft ``n`` tokens for each sequence now; it holds blocks for them."""
        return n <= self._longest_round and all(self._holds(running, n) for running in sequences)

    def submit(self, sequences: Sequence[Running], n: int) -> None:
        """Submit steps that draft ``n`` tokens of each sequence, which ``holds`` has allowed, without waiting."""
        waiting, parts = [self._hidden[running] for running in sequences], []
        for running, kept in zip(sequences, waiting, strict=True):
            kept.drop(min(kept.n_read, kept.n_rows - 1))
            parts.append(self._part(running, kept, kept.n_rows, True))
        rows = np.ascontiguousarray(np.concatenate([kept.rows for kept in waiting]), np.float32)
        for kept in waiting:
            kept.drop(kept.n_rows - 1)
            kept.n_read = 1
        self._submit_parts(parts, rows, n)

    def submit_after(self, sequences: Sequence[Running], n: int, n_drafted: int) -> None:
        """Submit the same behind a step that verifies ``n_drafted`` tokens of each sequence and has not ended.

        The layer reads what that step computes, and drafts behind the latest of its tokens. ``landed`` is called for
        no such step, but ``went_on`` once it has ended.
        """
        parts = [self._part_behind(running, running.n_past, 1 + n_drafted) for running in sequences]
        self._submit_parts(parts, None, n)

    def _part_behind(self, place: Place, position: int, n_rows: int) -> Part:
        """Return the tokens that a step with drafts at a position picks, with an output after the latest one."""
        return Part(place, [draft_of_slot(i) for i in range(n_rows)], position + 1, [0])

    def holds_after(self, sequences: Sequence[Running], n_drafted: int) -> bool:
        """Hold blocks for a round behind a step that verifies ``n_drafted`` tokens; return False if it cannot be."""
        return True

    def took(self, running: Running, tokens: Sequence[int]) -> None:
        """Note the right tokens of a round: nothing, since all that are computed again are right."""

    def went_on(self, sequences: Collection[Running], lost: Collection[Running]) -> None:
        """Note that the layer has read the states behind all tokens but the last, except of ``lost`` sequences."""
        for running in sequences:
            if running in lost:
                self._hidden.pop(running, None)
            elif (kept := self._hidden.get(running)) is not None:
                first, width = len(running.generation.tokens) - 2, kept.rows.shape[1]
                self._hidden[running] = Hidden(
                    running.tables, first, [np.zeros((1, width), np.float32)], kept.n_skipped, n_read=1
                )

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
        token = [draft_of_slot(0)]
        positions = [self._behind_latest if stream is None else self._next_position(part) for part in parts]
        pairs = zip(parts, positions, strict=True)
        later = self._batch([Part(part.place, token, position, [0]) for part, position in pairs])
        later.relative = stream is None
        later.passed = {"hidden": self._runner.passed(DRAFT, "hidden", n_seqs)}
        self._runner.submit(later, quiet(n_seqs, n - 1, first_draft=1), graph=DRAFT)

    _behind_latest = 1
    """Position of the tokens behind the first drafted one, relative to that of the latest token."""

    def _n_steps(self, parts: Sequence[Part], lacking: Collection[int]) -> int:
        """Return the number of steps to submit: all that each sequence lacks if the program can, else one."""
        n = min(lacking)
        can = len(lacking) == 1 and n <= self._runner.steps_of(DRAFT)
        return n if can and all(len(part.tokens) == 1 for part in parts) else 1

    def _behind(self, part: Part, running: Running, token: int) -> Part:
        """Return a guessed token, which follows the last one of ``part``."""
        return Part(running, [token], self._next_position(part), [0])

    def _next_position(self, part: Part) -> int:
        """Return the position of the token behind the last one of ``part``."""
        return part.n_past + len(part.tokens)

    def _holds(self, running: Running, n: int) -> bool:
        """Return True if the hidden state before the last token is known, and there are blocks for ``n`` tokens."""
        assert self.cache is not None
        n_tokens = len(running.generation.tokens)
        if n <= 0 or not self.knows(running):
            return False
        return self.cache.extend(running.tables, running.n_past, n_tokens - running.n_past + n)

    def _first_parts(self, sequences: Sequence[Running]) -> tuple[list[tuple[Running, Part]], Batch | None, Rows]:
        """Return the waiting tokens of sequences, their batch and hidden states; only the last row is kept."""
        waiting = [self._hidden[running] for running in sequences]
        if not waiting:
            return [], None, np.zeros((0, 0), np.float32)
        for kept in waiting:
            kept.drop(min(kept.n_read, max(0, kept.n_rows - 1)))
        parts = [self._part(running, kept, kept.n_rows, True) for running, kept in zip(sequences, waiting, strict=True)]
        batch = self._batch(parts)
        hidden = self._hidden_of(batch, np.concatenate([kept.rows for kept in waiting]))
        for kept in waiting:
            kept.drop(kept.n_rows - 1)
        return list(zip(sequences, parts, strict=True)), batch, hidden

    def _proposal(self, guesses: Sequence[Guess]) -> Proposal:
        return proposal_of([guess.token for guess in guesses], guesses, self._limits)


class CachedTokens(NextTokens):
    """Runs a draft model that has no cache of its own, but reads that of its target model (Gemma 4's assistant).

    It computes each token at the last position of the model's cache, from the hidden state there or from its own for
    the token before. So it needs only the last hidden state of a sequence.
    """

    name = "draft"
    _most_waiting = 1
    _behind_latest = -1

    def _n_skipped(self, running: Running, first: int) -> int:
        return 0

    def _limit(self, running: Running) -> None:
        kept = self._hidden[running]
        kept.drop(kept.n_rows - 1)

    def _part(self, running: Running, kept: Hidden, n: int, is_last: bool) -> Part:
        return Part(running, running.generation.tokens[kept.end :][:1], kept.end - 1, [0])

    def _next_position(self, part: Part) -> int:
        return part.n_past

    def _part_behind(self, place: Place, position: int, n_rows: int) -> Part:
        return Part(place, [draft_of_slot(i) for i in range(n_rows)], position, [0])


class NextTokensProposer(Proposer):
    """Proposes tokens of the layer. The engine sets ``running``, the sequence in its place, before each draft."""

    def __init__(self, layer: NextTokens) -> None:
        self.layer = layer
        self.running: Running | None = None

    def propose(self, n: int) -> Proposal:
        return self.layer.propose([self.running], [n])[0]

    @classmethod
    def propose_all(cls, proposers: Sequence[Self], n: Sequence[int]) -> list[Proposal]:
        return proposers[0].layer.propose([proposer.running for proposer in proposers], n) if proposers else []

    def close(self) -> None:
        if self.running is not None:
            self.layer.drop(self.running)
        self.running = None
