"""Translate tokens between the vocabulary of a model and that of its draft model, by their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol

from pumice.errors import ModelError
from pumice.tokenizers import Tokenizer

_TOKENS, _MODEL = "tokenizer.ggml.tokens", "tokenizer.ggml.model"
LEAST_SHARED = 0.1  # minimum share of the draft's tokens with a counterpart in the target's vocabulary


class DraftVocabulary(Protocol):
    """Translates tokens of the target model to those of the draft, and back."""

    def read(self, tokens: Iterable[int]) -> list[int]:
        """Return the draft's tokens for tokens of the target."""

    def written(self, token: int) -> int | None:
        """Return the target's token for a token of the draft; None without a counterpart."""


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
        return [token for token in tokens if token < self._n_draft]

    def written(self, token: int) -> int | None:
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
    return target.get(_MODEL) == draft.get(_MODEL) and _listed(target_tokens, n) == _listed(draft_tokens, n)


def _listed(tokens: Sequence[str], n: int) -> list[str]:
    return list(tokens[:n])


def other_vocabulary(target: Tokenizer, draft: Tokenizer, n_target: int, n_draft: int) -> OtherVocabulary:
    """Return the translation between two vocabularies. Raises ModelError if they have too few tokens in common."""
    vocabulary = OtherVocabulary(target, draft, n_target, n_draft)
    if vocabulary.share < LEAST_SHARED:
        raise ModelError(
            f"only {vocabulary.share:.0%} of the draft's tokens are in the model's vocabulary; choose a draft of the "
            "same family"
        )
    return vocabulary
