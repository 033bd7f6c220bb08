"""A draft model: a small model with a KV cache of its own, which proposes tokens for sequences of a larger one.

Tokens are drafted greedily, one step of the draft model per token for all sequences together. Its cache holds the text
of each sequence from the prompt on, so nothing that happens to the sequence in the target's cache (preemption, context
shift, forks) concerns it. Tokens are translated between two vocabularies by their bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from pumice.architecture import MAIN
from pumice.backend.step import Batch, draft_of_slot
from pumice.engine.cache.kv_cache import KVCache
from pumice.engine.drafts.drafter import Drafter, DraftLimits, Guess, guess_of, quiet, rehearsing
from pumice.engine.placement.runner import Runner
from pumice.engine.requests.batches import Part, Place, batch_after, batch_behind
from pumice.engine.requests.generation import Generation
from pumice.errors import ModelError
from pumice.tokenizers import Tokenizer

_TOKENS, _MODEL = "tokenizer.ggml.tokens", "tokenizer.ggml.model"
LEAST_SHARED = 0.1  # minimum share of the draft's tokens with a counterpart in the target's vocabulary


class SameVocabulary:
    """Both models have the same tokens; either may have unused logits beyond them.

    Args:
        n_draft: rows of the draft's token table.
        n_target: logits of the target.
    """

    def __init__(self, n_draft: int, n_target: int) -> None:
        self._n_draft = n_draft
        self._n_target = n_target

    def read(self, tokens: Iterable[int]) -> list[int]:
        """Return the draft's tokens for tokens of the target."""
        return [token for token in tokens if token < self._n_draft]

    def written(self, token: int) -> int | None:
        """Return the target's token for a token of the draft; None without a counterpart."""
        return token if token < self._n_target else None


class OtherVocabulary:
    """Translates between vocabularies by bytes (token-level intersection, arXiv:2502.05202).

    A token of the target becomes the draft's token with the same bytes, or else those of its text. A token of the
    draft is written if the target has a token with the same bytes.
    """

    def __init__(self, target: Tokenizer, draft: Tokenizer, n_target: int, n_draft: int) -> None:
        self._target, self._draft = target, draft
        drafts, targets = _by_bytes(draft, n_draft), _by_bytes(target, n_target)
        drafts.pop(b"", None)
        self._written = {token: targets[piece] for piece, token in drafts.items() if piece in targets}
        self.share = len(self._written) / max(1, len(drafts))
        roles = [(target.bos, draft.bos), (target.eos, draft.eos)]
        special = {token: drafted for token, drafted in roles if token is not None and drafted is not None}
        self._written |= {drafted: token for token, drafted in special.items()}
        self._read: dict[int, list[int]] = {token: [drafted] for token, drafted in special.items()}
        self._drafts = drafts

    def read(self, tokens: Iterable[int]) -> list[int]:
        return list(chain.from_iterable(map(self._read_one, tokens)))

    def written(self, token: int) -> int | None:
        return self._written.get(token)

    def _read_one(self, token: int) -> list[int]:
        if token not in self._read:
            piece = self._target.token_bytes(token)
            same = self._drafts.get(piece)
            self._read[token] = [same] if same is not None else self._tokenized(piece)
        return self._read[token]

    def _tokenized(self, piece: bytes) -> list[int]:
        """Return the draft's tokens for bytes; incomplete characters become tokens of single bytes, if there are."""
        try:
            return self._draft.tokenize_following(piece.decode())
        except UnicodeDecodeError:
            single = [self._drafts.get(bytes([byte])) for byte in piece]
            return [token for token in single if token is not None]


DraftVocabulary = SameVocabulary | OtherVocabulary
"""Translates tokens of the target model to those of the draft, and back."""


def _by_bytes(tokenizer: Tokenizer, n_vocab: int) -> dict[bytes, int]:
    """Return the first token with each text, without control tokens, whose text is empty."""
    tokens: dict[bytes, int] = {}
    for token in range(min(n_vocab, tokenizer.n_vocab)):
        tokens.setdefault(tokenizer.token_bytes(token), token)
    return tokens


def have_same_tokens(target: Mapping[str, Any], draft: Mapping[str, Any]) -> bool:
    """Return True if the metadata of two files has the same tokens; one may have more at its end."""
    target_tokens, draft_tokens = target.get(_TOKENS), draft.get(_TOKENS)
    if target_tokens is None or draft_tokens is None:
        return target_tokens is draft_tokens
    n = min(len(target_tokens), len(draft_tokens))
    return target.get(_MODEL) == draft.get(_MODEL) and [*target_tokens[:n]] == [*draft_tokens[:n]]


def other_vocabulary(target: Tokenizer, draft: Tokenizer, n_target: int, n_draft: int) -> OtherVocabulary:
    """Return the translation between two vocabularies. Raises ModelError if they have too few tokens in common."""
    vocabulary = OtherVocabulary(target, draft, n_target, n_draft)
    if vocabulary.share < LEAST_SHARED:
        raise ModelError(
            f"only {vocabulary.share:.0%} of the draft's tokens are in the model's vocabulary; choose a draft of the "
            "same family"
        )
    return vocabulary


MOST_BEHIND = 64  # tokens of a text that a proposal computes; more are read before, a part in each step


class DraftText:
    """The text of a sequence in the draft's vocabulary, and what of it is in the draft's cache.

    Attributes:
        tokens: the text.
        n_generated: generated tokens of the sequence in it.
        first: index of the first token in the draft's context.
        place: its place in the draft's cache, if it has one.
        n_past: confirmed tokens of the context in the cache.
        guessed: proposed tokens in the cache behind them.
        following: the guess after the whole text, if it is known.
    """

    def __init__(self, salt: bytes) -> None:
        self.salt = salt
        self.tokens: list[int] = []
        self.n_generated = 0
        self.first = 0
        self.place: Place | None = None
        self.n_past = 0
        self.guessed: list[int] = []
        self.following: Guess | None = None

    def append(self, tokens: Sequence[int]) -> None:
        """Append tokens, and count the proposed ones in the cache that they confirm, up to a wrong one."""
        if tokens:
            self.tokens += tokens
            self.following = None
        while self.guessed and self.n_past < self.n_context:
            if self.tokens[self.first + self.n_past] != self.guessed.pop(0):
                self.guessed.clear()
                return
            self.n_past += 1

    @property
    def n_context(self) -> int:
        """Return the number of tokens in the draft's context."""
        return len(self.tokens) - self.first

    @property
    def n_behind(self) -> int:
        """Return the number of tokens of the context that are not in the cache."""
        return self.n_context - self.n_past

    @property
    def context(self) -> list[int]:
        """Return the tokens of the draft's context."""
        return self.tokens[self.first :] if self.first else self.tokens


class DraftModel(Drafter):
    """Runs a draft model for the sequences of a target model. A single thread, that of the engine, owns it.

    Args:
        runner: the compiled draft model, whose slots of recurrent state are twice its sequences.
        vocabulary: translates between the target's tokens and the draft's.
        limits: limits of proposals.
    """

    name = "draft"
    takes_media = True

    def __init__(self, runner: Runner, vocabulary: DraftVocabulary, limits: DraftLimits) -> None:
        self._vocabulary = vocabulary
        self.runner = runner
        self._limits = limits
        self._most_steps = runner.capabilities.max_steps
        self._most_behind = min(MOST_BEHIND, runner.limits.n_batch)
        self._n_slots = runner.limits.n_seqs
        self._slots = list(range(self._n_slots))
        self._cache = KVCache(runner.limits, share_prefixes=not runner.model.recurrent)
        self._texts: dict[Generation, DraftText] = {}
        self._placed: OrderedDict[DraftText, None] = OrderedDict()  # least recently used first

    def _read_text(self, running: Generation) -> DraftText:
        """Return the text of a sequence, with its latest tokens."""
        text = self._texts.get(running)
        if text is None:
            text = self._texts[running] = DraftText(running.salt)
            text.append(self._vocabulary.read(running.spoken))
        if new := running.generated[text.n_generated :]:
            text.n_generated += len(new)
            text.append(self._vocabulary.read(new))
        return text

    def rehearse(self, n: int) -> None:
        with rehearsing(self._cache, 2 + n) as place:
            for i in range(n if place else 0):
                assert place is not None
                self._run(batch_behind(self._cache, [Part(place, [0], 1 + i, [0])]))

    def read(self, sequences: Sequence[Generation]) -> None:
        """Read a part of new texts, and of texts that are far ahead of the cache, in a single step.

        Their last tokens are left to ``propose``, as are texts for which there is no room.
        """
        texts = [self._read_text(running) for running in sequences]
        behind = [text for text in texts if text.place is None or text.n_behind > self._most_behind]
        ends = {text: text.n_context - 1 for text in behind if self._hold(text, 0, texts)}
        if any(text.n_past < end for text, end in ends.items()):
            self._step(ends)

    def knows(self, running: Generation) -> bool:
        """Return True unless a part of the text is in the cache, too little for a proposal."""
        text = self._texts.get(running)
        return text is None or text.place is None or text.n_behind <= self._most_behind

    def propose(self, sequences: Sequence[Generation], n: Sequence[int]) -> list[Sequence[int]]:
        texts = [self._read_text(running) for running in sequences]
        limits = [min(limit, self._limits.most) for limit in n]
        pairs = list(zip(texts, limits, strict=True))
        most = {text: limit for text, limit in pairs if limit > 0 and self._hold(text, limit, texts)}
        most = {text: limit for text, limit in most.items() if text.n_behind <= self._most_behind}
        self._compute(most)
        drafts = self._draft(most)
        return [self._proposal(drafts.get(text, [])) for text in texts]

    def drop(self, running: Generation) -> None:
        self.close(running)

    def close(self, generation: Generation) -> None:
        if text := self._texts.pop(generation, None):
            self._release(text)

    def _release(self, text: DraftText) -> None:
        """Release the place of a text; its blocks stay cached for other sequences with the same prefix."""
        if text.place is not None:
            self._cache.publish(text.place.tables, text.context, text.n_past)
            self._cache.release(text.place.tables, text.context[: text.n_past])
            self._slots.append(text.place.slot)
            del self._placed[text]
        text.place, text.n_past, text.following = None, 0, None
        text.guessed.clear()

    # --- rounds with the target

    def submits(self, target: Runner) -> bool:
        """Return True if its steps pass their tokens to steps of the target on the device."""
        if self.runner.model.recurrent or not self._most_steps or self.runner.model.n_vocab > target.model.n_vocab:
            return False
        place = target.passes_on([MAIN])
        if self.runner.limits.n_seqs != target.limits.n_seqs or not isinstance(self._vocabulary, SameVocabulary):
            return False
        return place is not None and place == self.runner.passes_on([MAIN])

    @property
    def _longest_round(self) -> int:
        """The maximum drafted tokens of a round, all of which but the first are steps of one submission."""
        return min(self._limits.most, 1 + self._most_steps)

    def holds(self, sequences: Sequence[Generation], n: int) -> bool:
        """Return True if the next step can read the texts of sequences, and ``n`` tokens of each can be drafted."""
        texts = [self._read_text(running) for running in sequences]
        if n > self._longest_round or not all(self._hold(text, n, texts) for text in texts):
            return False
        n_behind = [max(1, text.n_behind) for text in texts]
        begins = any(text.n_context < n for text, n in zip(texts, n_behind, strict=True))
        return not begins and max(n_behind) <= self._most_behind and sum(n_behind) <= self.runner.limits.n_batch

    def submit(self, sequences: Sequence[Generation], n: int) -> None:
        """Submit steps that read the texts of sequences, which ``holds`` has allowed, and draft ``n`` tokens of each.

        They become drafts of the sequences' slots in the target. On an error, everything in the cache is forgotten.
        """
        texts, parts = [self._read_text(running) for running in sequences], []
        for running, text in zip(sequences, texts, strict=True):
            n_behind = max(1, text.n_behind)  # the guess behind a text is computed again
            assert text.place is not None
            place, begin = Place(running.slot, text.place.tables), text.n_context - n_behind
            parts.append(Part(place, text.tokens[-n_behind:], begin, [n_behind - 1]))
        try:
            self._submit_parts(parts, n)
        except Exception:
            self._forget()
            raise
        for text in texts:
            assert text.place is not None
            text.n_past, text.following = text.n_context, None
            text.guessed.clear()
            self._cache.publish(text.place.tables, text.context, text.n_past)

    def _submit_parts(self, parts: Sequence[Part], n: int) -> None:
        self.runner.submit(batch_behind(self._cache, parts), quiet(len(parts), 1))
        if n > 1:
            ends = [(part.place, part.n_past + len(part.tokens)) for part in parts]
            later = [Part(place, [draft_of_slot(0)], end, [0]) for place, end in ends]
            self.runner.submit(batch_behind(self._cache, later), quiet(len(parts), n - 1, first_draft=1))

    def took(self, running: Generation, tokens: Sequence[int]) -> None:
        text = self._texts.get(running)
        if text and text.place is not None:
            text.guessed = list(tokens)

    # --- room in the cache

    def _hold(self, text: DraftText, n: int, busy: Sequence[DraftText]) -> bool:
        """Hold a place for the text of a sequence and ``n`` tokens more; others than the ``busy`` ones give way."""
        if text.n_context + n > self._limits.n_ctx:
            self._release(text)
            text.first = max(0, len(text.tokens) - self._limits.n_ctx // 2)
        if not text.n_context or text.n_context + n > self._limits.n_ctx:
            return False
        while text.place is None:
            if self._slots:
                tables, text.n_past = self._cache.begin(text.context, text.salt)
                text.place = Place(self._slots.pop(), tables)
            elif not self._displace(busy):
                return False
        self._placed[text] = None
        self._placed.move_to_end(text)
        while not self._cache.extend(text.place.tables, text.n_past, text.n_context + n - text.n_past):
            if not self._displace(busy):
                self._release(text)
                return False
        return True

    def _displace(self, busy: Sequence[DraftText]) -> bool:
        """Release the place of the least recently used sequence that is not ``busy``; False without one."""
        idle = next((text for text in self._placed if text not in busy), None)
        if idle is not None:
            self._release(idle)
        return idle is not None

    # --- steps

    def _compute(self, sequences: Mapping[DraftText, int]) -> None:
        """Compute the contexts of sequences in as few steps as possible, and keep the guesses after them."""
        ends = {text: text.n_context for text in sequences}
        for text in ends:
            if not text.n_behind and text.following is None:
                text.n_past -= 1  # the guess is computed again
                text.guessed.clear()
        while any(text.n_behind for text in ends):
            self._step(ends)

    def _step(self, ends: Mapping[DraftText, int]) -> None:
        """Compute next tokens of sequences up to these numbers of tokens, as many as a step takes.

        The guess after the last token of a text is kept.
        """
        room, parts, members = self.runner.limits.n_batch, [], []
        for text in (text for text, end in ends.items() if text.n_past < end):
            n_new = min(room, ends[text] - text.n_past)
            if not n_new:
                break
            room -= n_new
            begin = text.first + text.n_past
            tokens = text.tokens[begin : begin + n_new]
            is_last = text.n_past + n_new == text.n_context
            assert text.place is not None
            parts.append(Part(text.place, tokens, text.n_past, [n_new - 1] if is_last else []))
            members.append((text, n_new))
        guesses = iter(self._run(batch_behind(self._cache, parts)))
        for (text, n_new), part in zip(members, parts, strict=True):
            text.n_past += n_new
            text.guessed.clear()
            text.following = next(guesses) if part.output_rows else None
            assert text.place is not None
            self._cache.publish(text.place.tables, text.context, text.n_past)

    def _draft(self, most: Mapping[DraftText, int]) -> dict[DraftText, list[Guess]]:
        """Return the guesses for sequences, one step per token for all of them."""
        drafts: dict[DraftText, list[Guess]] = {text: [] for text in most}
        places = {text: text.place for text in most if text.place is not None}
        if self.runner.model.recurrent:
            places = self._copied(places)
        coming = {text: text.following for text in most}
        batch: Batch | None = None
        for text in most:
            text.guessed.clear()
        while True:
            going: list[DraftText] = []
            for text, guess in coming.items():
                if guess is not None and self._is_good(guess):
                    drafts[text].append(guess)
                    going += [text] if len(drafts[text]) < most[text] else []
            if not going:
                return drafts
            ends = [(text, drafts[text][-1].token, len(drafts[text]) - 1) for text in going]
            parts = [Part(places[item], [token], item.n_context + n, [0]) for item, token, n in ends]
            is_next = batch is not None and len(batch.slots) == len(parts)  # of the same sequences
            batch = batch_after(batch, parts) if batch is not None and is_next else batch_behind(self._cache, parts)
            coming = dict(zip(going, self._run(batch), strict=True))
            for text, token, _ in ends if not self.runner.model.recurrent else ():
                text.guessed.append(token)

    def _is_good(self, guess: Guess) -> bool:
        """Return True if a guess may be proposed, and others behind it."""
        return guess.probability >= self._limits.p_min and self._vocabulary.written(guess.token) is not None

    def _copied(self, places: dict[DraftText, Place]) -> dict[DraftText, Place]:
        """Copy the states of sequences to the second half of the slots, in which wrong guesses do no harm."""
        copies = {text: Place(place.slot + self._n_slots, place.tables) for text, place in places.items()}
        if places:
            pairs = [(place.slot, copies[text].slot) for text, place in places.items()]
            self.runner.cache.call(self.runner.cache.program.copy_slots, pairs)
        return copies

    def _run(self, batch: Batch) -> list[Guess]:
        """Return the guess after each output row. On an error, everything in the cache is forgotten."""
        try:
            return [guess_of(row) for row in self.runner.outputs(batch)["logits"]]
        except Exception:
            self._forget()
            raise

    def _forget(self) -> None:
        """Forget everything in the cache."""
        for text in list(self._placed):
            self._release(text)
        self._cache.forget()

    def _proposal(self, guesses: Sequence[Guess]) -> Sequence[int]:
        """Return the tokens of guesses in the target's vocabulary; none if there are too few."""
        tokens = [self._vocabulary.written(guess.token) for guess in guesses]
        return [token for token in tokens if token is not None] if len(tokens) >= self._limits.least else []
