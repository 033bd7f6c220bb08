"""A draft model: a small model with a KV cache of its own, which proposes tokens for sequences of a larger one.

Tokens are drafted greedily, one step of the draft model per token for all sequences together. Its cache holds the text
of each sequence from the prompt on, so nothing that happens to the sequence in the target's cache (preemption, context
shift, forks) concerns it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from pumice.architecture import MAIN
from pumice.backend.step import Batch, draft_of_slot
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.drafts.drafter import DraftLimits, Guess, guess_of, quiet, rehearsing
from pumice.engine.drafts.vocabulary import DraftVocabulary, SameVocabulary
from pumice.engine.placement.runner import Runner
from pumice.engine.requests.batches import Part, Place, batch_after, batch_behind
from pumice.proposers import Proposer, ProposerContext

MOST_BEHIND = 64  # tokens of a text that a proposal computes; more are read before, a part in each step


class ModelProposer(Proposer):
    """Proposes the most probable tokens of a draft model for one sequence.

    Attributes:
        tokens: the text in the draft's vocabulary.
        first: index of the first token in the draft's context.
        place: its place in the draft's cache, if it has one.
        n_past: confirmed tokens of the context in the cache.
        guessed: proposed tokens in the cache behind them.
        following: the guess after the whole text, if it is known.
    """

    def __init__(self, model: DraftModel) -> None:
        self.model = model
        self.tokens: list[int] = []
        self.first = 0
        self.place: Place | None = None
        self.n_past = 0
        self.guessed: list[int] = []
        self.following: Guess | None = None

    def start(self, context: ProposerContext) -> None:
        self.salt = context.salt

    def accept(self, tokens: Sequence[int]) -> None:
        if new := self.model.vocabulary.read(tokens):
            self.tokens += new
            self.following = None
        self._confirm()

    def propose(self, n: int) -> Sequence[int]:
        return self.model.propose([self], [n])[0]

    @classmethod
    def propose_all(cls, proposers: Sequence[Self], n: Sequence[int]) -> list[Sequence[int]]:
        return proposers[0].model.propose(proposers, n) if proposers else []

    @classmethod
    def read_all(cls, proposers: Sequence[ModelProposer]) -> None:
        """Read a part of the texts of sequences that are new, in one step for all of them."""
        if proposers:
            proposers[0].model.read(proposers)

    def close(self) -> None:
        self.model.release(self)

    @property
    def n_context(self) -> int:
        """Return the number of tokens in the draft's context."""
        return len(self.tokens) - self.first

    @property
    def n_behind(self) -> int:
        """Return the number of tokens of the context that are not in the cache."""
        return self.n_context - self.n_past

    @property
    def is_reading(self) -> bool:
        """True if a text is in the draft's cache in part, too little for a proposal."""
        return self.place is not None and self.n_behind > self.model.most_behind

    @property
    def context(self) -> list[int]:
        """Return the tokens of the draft's context."""
        return self.tokens[self.first :] if self.first else self.tokens

    def _confirm(self) -> None:
        """Count the proposed tokens in the cache that the text continues with; forget the others after a wrong one."""
        while self.guessed and self.n_past < self.n_context:
            if self.tokens[self.first + self.n_past] != self.guessed.pop(0):
                self.guessed.clear()
                return
            self.n_past += 1


class DraftModel:
    """Runs a draft model for the sequences of a target model. A single thread, that of the engine, owns it.

    Args:
        runner: the compiled draft model, whose slots of recurrent state are twice its sequences.
        vocabulary: translates between the target's tokens and the draft's.
        limits: limits of proposals.
    """

    def __init__(self, runner: Runner, vocabulary: DraftVocabulary, limits: DraftLimits) -> None:
        self.vocabulary = vocabulary
        self.runner = runner
        self._limits = limits
        self._most_steps = runner.capabilities.max_steps
        self.most_behind = min(MOST_BEHIND, runner.limits.n_batch)
        self._n_slots = runner.limits.n_seqs
        self._slots = list(range(self._n_slots))
        self._cache = KVCache(runner.limits, share_prefixes=not runner.model.recurrent)
        self._placed: OrderedDict[ModelProposer, None] = OrderedDict()  # least recently used first

    def proposer(self) -> ModelProposer:
        """Return the proposer of a new sequence."""
        return ModelProposer(self)

    def rehearse(self, n: int) -> None:
        """Draft ``n`` tokens behind a text of a few tokens, which belongs to no sequence."""
        with rehearsing(self._cache, 2 + n) as place:
            for i in range(n if place else 0):
                assert place is not None
                self._run(batch_behind(self._cache, [Part(place, [0], 1 + i, [0])]))

    def read(self, sequences: Sequence[ModelProposer]) -> None:
        """Read a part of new texts, and of texts that are far ahead of the cache, in a single step.

        Their last tokens are left to ``propose``, as are texts for which there is no room.
        """
        busy = set(sequences)
        behind = [sequence for sequence in sequences if sequence.place is None or sequence.n_behind > self.most_behind]
        ends = {sequence: sequence.n_context - 1 for sequence in behind if self._hold(sequence, 0, busy)}
        if any(sequence.n_past < end for sequence, end in ends.items()):
            self._step(ends)

    def propose(self, sequences: Sequence[ModelProposer], n: Sequence[int]) -> list[Sequence[int]]:
        """Return the proposals for sequences, of at most ``n[i]`` tokens each; none before their texts are read."""
        busy = set(sequences)
        most = {
            sequence: k
            for sequence, limit in zip(sequences, n, strict=True)
            if limit > 0 and self._hold(sequence, k := min(limit, self._limits.most), busy)
        }
        most = {sequence: limit for sequence, limit in most.items() if sequence.n_behind <= self.most_behind}
        self._compute(most)
        drafts = self._draft(most)
        return [self._proposal(drafts.get(sequence, [])) for sequence in sequences]

    def release(self, sequence: ModelProposer) -> None:
        """Release the place of a sequence; its blocks stay cached for other sequences with the same prefix."""
        if sequence.place is not None:
            self._cache.publish(sequence.place.tables, sequence.context, sequence.n_past)
            self._cache.release(sequence.place.tables, sequence.context[: sequence.n_past])
            self._slots.append(sequence.place.slot)
            del self._placed[sequence]
        sequence.place, sequence.n_past, sequence.following = None, 0, None
        sequence.guessed.clear()

    # --- rounds with the target

    def submits(self, target: Runner) -> bool:
        """Return True if its steps pass their tokens to steps of the target on the device."""
        if self.runner.model.recurrent or not self._most_steps or self.runner.model.n_vocab > target.model.n_vocab:
            return False
        place = target.passes_on([MAIN])
        if self.runner.limits.n_seqs != target.limits.n_seqs or not isinstance(self.vocabulary, SameVocabulary):
            return False
        return place is not None and place == self.runner.passes_on([MAIN])

    @property
    def _longest_round(self) -> int:
        """The maximum drafted tokens of a round, all of which but the first are steps of one submission."""
        return min(self._limits.most, 1 + self._most_steps)

    def holds(self, sequences: Sequence[ModelProposer], n: int) -> bool:
        """Return True if the next step can read the texts of sequences, and ``n`` tokens of each can be drafted."""
        busy = set(sequences)
        if n > self._longest_round or not all(self._hold(sequence, n, busy) for sequence in sequences):
            return False
        n_behind = [max(1, sequence.n_behind) for sequence in sequences]
        begins = any(sequence.n_context - n < 1 for sequence, n in zip(sequences, n_behind, strict=True))
        return not begins and max(n_behind) <= self.most_behind and sum(n_behind) <= self.runner.limits.n_batch

    def submit(self, sequences: Sequence[ModelProposer], slots: Sequence[int], n: int) -> None:
        """Submit steps that read the texts of sequences, which ``holds`` has allowed, and draft ``n`` tokens of each.

        They become drafts of these slots of the target. On an error, everything in the cache is forgotten.
        """
        parts = []
        for sequence, slot in zip(sequences, slots, strict=True):
            n_behind = max(1, sequence.n_behind)  # the guess behind a text is computed again
            assert sequence.place is not None
            place, begin = Place(slot, sequence.place.tables), sequence.n_context - n_behind
            parts.append(Part(place, sequence.tokens[-n_behind:], begin, [n_behind - 1]))
        try:
            self._submit_parts(parts, n)
        except Exception:
            self._forget()
            raise
        for sequence in sequences:
            assert sequence.place is not None
            sequence.n_past, sequence.following = sequence.n_context, None
            sequence.guessed.clear()
            self._cache.publish(sequence.place.tables, sequence.context, sequence.n_past)

    def _submit_parts(self, parts: Sequence[Part], n: int) -> None:
        self.runner.submit(batch_behind(self._cache, parts), quiet(len(parts), 1))
        if n > 1:
            ends = [(part.place, part.n_past + len(part.tokens)) for part in parts]
            later = [Part(place, [draft_of_slot(0)], end, [0]) for place, end in ends]
            self.runner.submit(batch_behind(self._cache, later), quiet(len(parts), n - 1, first_draft=1))

    # --- room in the cache

    def _hold(self, sequence: ModelProposer, n: int, busy: set[ModelProposer]) -> bool:
        """Hold a place for the text of a sequence and ``n`` tokens more; others than the ``busy`` ones give way."""
        if sequence.n_context + n > self._limits.n_ctx:
            self.release(sequence)
            sequence.first = max(0, len(sequence.tokens) - self._limits.n_ctx // 2)
        if not sequence.n_context or sequence.n_context + n > self._limits.n_ctx:
            return False
        while sequence.place is None:
            if self._slots:
                tables, sequence.n_past = self._cache.begin(sequence.context, sequence.salt)
                sequence.place = Place(self._slots.pop(), tables)
            elif not self._displace(busy):
                return False
        self._placed[sequence] = None
        self._placed.move_to_end(sequence)
        while not self._cache.extend(sequence.place.tables, sequence.n_past, sequence.n_context + n - sequence.n_past):
            if not self._displace(busy):
                self.release(sequence)
                return False
        return True

    def _displace(self, busy: set[ModelProposer]) -> bool:
        """Release the place of the least recently used sequence that is not ``busy``; False without one."""
        idle = next((sequence for sequence in self._placed if sequence not in busy), None)
        if idle is not None:
            self.release(idle)
        return idle is not None

    # --- steps

    def _compute(self, sequences: Iterable[ModelProposer]) -> None:
        """Compute the contexts of sequences in as few steps as possible, and keep the guesses after them."""
        ends = {sequence: sequence.n_context for sequence in sequences}
        for sequence in ends:
            if not sequence.n_behind and sequence.following is None:
                sequence.n_past -= 1  # the guess is computed again
                sequence.guessed.clear()
        while any(sequence.n_behind for sequence in ends):
            self._step(ends)

    def _step(self, ends: Mapping[ModelProposer, int]) -> None:
        """Compute next tokens of sequences up to these numbers of tokens, as many as a step takes.

        The guess after the last token of a text is kept.
        """
        room, parts, members = self.runner.limits.n_batch, [], []
        for sequence in (sequence for sequence, end in ends.items() if sequence.n_past < end):
            n_new = min(room, ends[sequence] - sequence.n_past)
            if not n_new:
                break
            room -= n_new
            begin = sequence.first + sequence.n_past
            tokens = sequence.tokens[begin : begin + n_new]
            is_last = sequence.n_past + n_new == sequence.n_context
            assert sequence.place is not None
            parts.append(Part(sequence.place, tokens, sequence.n_past, [n_new - 1] if is_last else []))
            members.append((sequence, n_new))
        guesses = iter(self._run(batch_behind(self._cache, parts)))
        for (sequence, n_new), part in zip(members, parts, strict=True):
            sequence.n_past += n_new
            sequence.guessed.clear()
            sequence.following = next(guesses) if part.output_rows else None
            assert sequence.place is not None
            self._cache.publish(sequence.place.tables, sequence.context, sequence.n_past)

    def _draft(self, most: Mapping[ModelProposer, int]) -> dict[ModelProposer, list[Guess]]:
        """Return the guesses for sequences, one step per token for all of them."""
        drafts: dict[ModelProposer, list[Guess]] = {sequence: [] for sequence in most}
        places = {sequence: sequence.place for sequence in most if sequence.place is not None}
        if self.runner.model.recurrent:
            places = self._copied(places)
        coming = {sequence: sequence.following for sequence in most}
        batch: Batch | None = None
        for sequence in most:
            sequence.guessed.clear()
        while True:
            going: list[ModelProposer] = []
            for sequence, guess in coming.items():
                if guess is not None and self._is_good(guess):
                    drafts[sequence].append(guess)
                    going += [sequence] if len(drafts[sequence]) < most[sequence] else []
            if not going:
                return drafts
            ends = [(sequence, drafts[sequence][-1].token, len(drafts[sequence]) - 1) for sequence in going]
            parts = [Part(places[item], [token], item.n_context + n, [0]) for item, token, n in ends]
            is_next = batch is not None and len(batch.slots) == len(parts)  # of the same sequences
            batch = batch_after(batch, parts) if batch is not None and is_next else batch_behind(self._cache, parts)
            coming = dict(zip(going, self._run(batch), strict=True))
            for sequence, token, _ in ends if not self.runner.model.recurrent else ():
                sequence.guessed.append(token)

    def _is_good(self, guess: Guess) -> bool:
        """Return True if a guess may be proposed, and others behind it."""
        return guess.probability >= self._limits.p_min and self.vocabulary.written(guess.token) is not None

    def _copied(self, places: dict[ModelProposer, Place]) -> dict[ModelProposer, Place]:
        """Copy the states of sequences to the second half of the slots, in which wrong guesses do no harm."""
        copies = {sequence: Place(place.slot + self._n_slots, place.tables) for sequence, place in places.items()}
        if places:
            self.runner.cache.copy_slots([(place.slot, copies[sequence].slot) for sequence, place in places.items()])
        return copies

    def _run(self, batch: Batch) -> list[Guess]:
        """Return the guess after each output row. On an error, everything in the cache is forgotten."""
        try:
            return [guess_of(row) for row in self.runner.run(batch)]
        except Exception:
            self._forget()
            raise

    def _forget(self) -> None:
        """Forget everything in the cache."""
        for sequence in list(self._placed):
            self.release(sequence)
        self._cache.forget()

    def _proposal(self, guesses: Sequence[Guess]) -> Sequence[int]:
        """Return the tokens of guesses in the target's vocabulary; none if there are too few."""
        tokens = [self.vocabulary.written(guess.token) for guess in guesses]
        return [token for token in tokens if token is not None] if len(tokens) >= self._limits.least else []
