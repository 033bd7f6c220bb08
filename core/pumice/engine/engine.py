"""The scheduler: many sequences, one batch a step; prompts in chunks, generation a token or a few at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence as Tokens

import numpy as np
from numpy.typing import NDArray

from pumice.backend import Batch
from pumice.engine.kv_cache import BlockTables, KVCache
from pumice.engine.lookahead import Lookahead
from pumice.engine.runner import Runner
from pumice.engine.sequence import Request, Sequence
from pumice.errors import RequestError


class Engine:
    """Generates any number of sequences, up to ``limits.n_seqs`` of them in one batch; the others wait."""

    def __init__(self, runner: Runner) -> None:
        self.limits = runner.limits
        self._runner = runner
        # A recurrent state holds a sequence's whole past, so blocks of its prefix alone are of no use.
        self._cache = KVCache(runner.limits, share_prefixes=not runner.recurrent)
        self._ahead = runner.ahead
        self._lookahead = Lookahead(self._ahead, self._cache, self.limits.n_ctx) if self._ahead else None
        self._slots = list(range(runner.limits.n_seqs))[::-1]
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []

    def add(self, request: Request) -> Sequence:
        """Queue a request. Raises RequestError if its prompt is empty or does not fit the context."""
        if not request.prompt:
            raise RequestError("the prompt has no tokens: give some text")
        if len(request.prompt) > self.limits.n_ctx:
            raise RequestError(
                f"the prompt has {len(request.prompt)} tokens, n_ctx is {self.limits.n_ctx}: shorten it or raise n_ctx"
            )
        sequence = Sequence(request, list(request.prompt))
        sequence.timings.prompt_tokens = len(sequence.tokens)
        for token in sequence.tokens:
            request.chain.accept(token)
        if request.max_tokens <= 0:
            sequence.finish_reason = "length"
        else:
            self._waiting.append(sequence)
        return sequence

    def cancel(self, sequence: Sequence) -> None:
        """End a sequence now, at whatever token it is."""
        if sequence.finish_reason is None:
            sequence.finish_reason = "cancelled"
        self._retire()

    def step(self) -> bool:
        """Compute one batch; sequences with nothing left to compute get their next token. False if all is done."""
        self._admit()
        members = self._schedule()
        if not members:
            return False
        try:
            self._compute(members)
        except BaseException:  # an interrupt too: what these sequences hold must come back
            for sequence, _ in members:
                sequence.finish_reason = sequence.finish_reason or "cancelled"
            raise
        finally:
            self._retire()
        return bool(self._running or self._waiting)

    def _compute(self, members: list[tuple[Sequence, int]]) -> None:
        n_steps = self._lookahead.steps(members) if self._lookahead else 0
        if n_steps:
            self._generate(members, n_steps)
            return
        logits = self._runner.run(self._batch(members))
        row = 0
        for sequence, n_new in members:
            self._computed(sequence, n_new)
            if sequence.pending == 0:
                self._take(sequence, sequence.request.chain.sample(logits[row]))
                row += 1

    def _generate(self, members: list[tuple[Sequence, int]], n_steps: int) -> None:
        """Several steps at once. The program guesses the tokens; a sequence's chain ends its steps at a wrong guess.

        What was computed beyond lies in the cache where the right tokens will.
        """
        assert self._ahead is not None
        assert self._lookahead is not None
        chains = [sequence.request.chain for sequence, _ in members]
        picks = [chain.pick for chain in chains if chain.pick]
        numbers = np.stack([chain.peek(n_steps) for chain in chains], axis=1)
        n_best = max(chain.n_best or 0 for chain in chains)
        started = time.perf_counter()
        ahead = self._ahead.run_ahead(self._batch(members), picks, numbers, n_best)
        self._lookahead.took(len(members), n_steps, time.perf_counter() - started)
        going = {row: sequence for row, (sequence, _) in enumerate(members)}
        for step in range(n_steps):
            for row, sequence in list(going.items()):
                self._computed(sequence, 1)
                token = sequence.request.chain.sample(ahead.logits[step, row], ahead.ids[step, row])
                self._take(sequence, token)
                if sequence.finish_reason or token != ahead.picked[step, row]:
                    del going[row]

    def _computed(self, sequence: Sequence, n_new: int) -> None:
        sequence.n_past += n_new
        assert sequence.tables is not None
        self._cache.publish(sequence.tables, sequence.tokens, sequence.n_past)

    def _take(self, sequence: Sequence, token: int) -> None:
        """Go on with a token, or end."""
        sequence.accept(token)
        if len(sequence.tokens) > self.limits.n_ctx and not sequence.finish_reason:
            self._shift(sequence)

    def logits(self, tokens: Tokens[int]) -> NDArray[np.float32]:
        """Logits ``[len(tokens), n_vocab]`` of a fresh sequence. RequestError while others hold what it needs."""
        if len(tokens) > self.limits.n_ctx:
            raise RequestError(f"{len(tokens)} tokens do not fit the context of {self.limits.n_ctx}: raise n_ctx")
        if not self._slots:
            raise RequestError("all sequences of this model are in use: finish or close a stream first")
        chunk = min(self.limits.n_batch, self.limits.n_outputs)
        tables, _ = self._cache.begin([])
        rows = []
        try:
            for first in range(0, len(tokens), chunk):
                part = tokens[first : first + chunk]
                rows.append(self._forward(tables, part, first, outputs=range(len(part))).copy())
        finally:
            self._cache.release(tables)
        return np.concatenate(rows) if rows else np.empty((0, 0), np.float32)

    def measure(self, tokens: Tokens[int], depth: int) -> float:
        """Seconds to read a fresh sequence's tokens after the first ``depth``."""
        tables, _ = self._cache.begin([])
        try:
            self._read(tables, tokens[:depth], 0)
            started = time.perf_counter()
            self._read(tables, tokens, depth)
            return time.perf_counter() - started
        finally:
            self._cache.release(tables)

    def _read(self, tables: BlockTables, tokens: Tokens[int], n_past: int) -> None:
        """Compute ``tokens[n_past:]`` of a lone sequence, with the logits of each step's last token."""
        for first in range(n_past, len(tokens), self.limits.n_batch):
            part = tokens[first : first + self.limits.n_batch]
            self._forward(tables, part, first, outputs=[len(part) - 1])

    def _forward(
        self, tables: BlockTables, tokens: Tokens[int], n_past: int, outputs: Tokens[int]
    ) -> NDArray[np.float32]:
        """One step of a lone sequence outside the schedule, in a slot that is free."""
        if not self._slots or not self._cache.extend(tables, n_past, len(tokens)):
            raise RequestError("the context is in use by other sequences: finish or close a stream first")
        batch = Batch(
            tokens=np.asarray(tokens, np.int32),
            positions=np.arange(n_past, n_past + len(tokens), dtype=np.int32),
            output_ids=np.asarray(outputs, np.int32),
            seq_starts=np.array([0, len(tokens)], np.int32),
            slots=np.array(self._slots[-1:], np.int32),
            block_tables=self._cache.batch_tables([tables]),
        )
        return self._runner.run(batch)

    def _admit(self) -> None:
        while self._waiting and self._slots:
            sequence = self._waiting.popleft()
            sequence.tables, sequence.n_past = self._cache.begin(sequence.tokens)
            sequence.timings.prompt_cached = sequence.n_past
            sequence.slot = self._slots.pop()
            self._running.append(sequence)

    def _schedule(self) -> list[tuple[Sequence, int]]:
        """Who is in the next batch with how many tokens: those that generate first, then prompts."""
        members: list[tuple[Sequence, int]] = []
        room = self.limits.n_batch
        for sequence in sorted(self._running, key=lambda s: s.pending > 1):
            n_new = min(sequence.pending, room)
            if n_new and sequence.tables is not None and self._hold_blocks(sequence, n_new, members):
                members.append((sequence, n_new))
                room -= n_new
        return members

    def _hold_blocks(self, sequence: Sequence, n_new: int, members: list[tuple[Sequence, int]]) -> bool:
        """Blocks for a sequence's next tokens; where they run out, the youngest outside this batch is put back to wait.

        A lone sequence always fits, so the first of a batch never fails and all come to their end.
        """
        assert sequence.tables is not None
        busy = [sequence, *(member for member, _ in members)]
        while not self._cache.extend(sequence.tables, sequence.n_past, n_new):
            others = [other for other in self._running if other not in busy]
            if not others:
                return False
            self._release(others[-1])
            self._running.remove(others[-1])
            self._waiting.appendleft(others[-1])
        return True

    def _shift(self, sequence: Sequence) -> None:
        """Make a sequence that fills the context shorter, to be read again, or finish it."""
        n_keep = min(sequence.request.n_keep, len(sequence.tokens) // 2)
        n_discard = (len(sequence.tokens) - n_keep) // 2
        if not sequence.request.context_shift or n_discard == 0:
            sequence.finish_reason = "context_full"
            return
        del sequence.tokens[n_keep : n_keep + n_discard]
        assert sequence.tables is not None
        self._cache.release(sequence.tables)
        sequence.tables, sequence.n_past = self._cache.begin(sequence.tokens)

    def _retire(self) -> None:
        """Take back what finished sequences hold."""
        for sequence in [s for s in self._running if s.finish_reason]:
            self._release(sequence)
            self._running.remove(sequence)
        self._waiting = deque(s for s in self._waiting if not s.finish_reason)

    def _release(self, sequence: Sequence) -> None:
        assert sequence.tables is not None
        self._cache.release(sequence.tables)
        self._slots.append(sequence.slot)
        sequence.tables, sequence.slot, sequence.n_past = None, -1, 0

    def _batch(self, members: list[tuple[Sequence, int]]) -> Batch:
        starts = np.cumsum([0, *(n_new for _, n_new in members)]).astype(np.int32)
        outputs = [starts[i + 1] - 1 for i, (s, n_new) in enumerate(members) if s.pending == n_new]
        tables = [s.tables for s, _ in members if s.tables is not None]
        return Batch(
            tokens=np.concatenate([s.tokens[s.n_past : s.n_past + n] for s, n in members]).astype(np.int32),
            positions=np.concatenate([np.arange(s.n_past, s.n_past + n, dtype=np.int32) for s, n in members]),
            output_ids=np.array(outputs, np.int32),
            seq_starts=starts,
            slots=np.array([s.slot for s, _ in members], np.int32),
            block_tables=self._cache.batch_tables(tables),
        )
