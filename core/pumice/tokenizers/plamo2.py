"""PLaMo 2's tokenizer (GGUF's tokenizer model "plamo2"): the cheapest segmentation of a text, searched from its end.

Costs and order are those of the model's ``tokenization_plamo.py``.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from pumice.errors import TokenizerError
from pumice.tokenizers.base import Tokenizer
from pumice.tokenizers.lattice import Lattice, finite_scores
from pumice.tokenizers.special import SpecialTokens
from pumice.tokenizers.vocabulary import PREFIX, Vocabulary, byte_token

# Scores are compared as integer multiples of 1 / _SCALE.
_SCALE = 10_000
# The scaled score of an unknown character, and the one up to which tokens are never used.
_UNKNOWN, _INVALID = -10_000_000, -20_000_000
_BYTE_ORDER_MARK = "\ufeff"


class PLaMo2Tokenizer(Tokenizer):
    """Unigram over integer scores; unknown characters are spelled by byte tokens."""

    kind: ClassVar[str] = "plamo2"

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        vocabulary = Vocabulary.from_metadata(metadata)
        special = SpecialTokens.from_metadata(metadata, vocabulary, bos=1, eos=2, unk=0)
        super().__init__(metadata, vocabulary, special=special, add_bos=False)
        self._scores = finite_scores(metadata, self.n_vocab)
        byte_tokens = {vocabulary.tokens[token].upper(): token for token in vocabulary.byte}
        missing = [byte for byte in range(256) if not byte_tokens.get(byte_token(byte).upper())]
        if missing:
            raise TokenizerError(
                f"{PREFIX}tokens: byte token {byte_token(missing[0])} is missing; PLaMo 2 needs all 256"
            )
        self._bytes = [byte_tokens[byte_token(byte).upper()] for byte in range(256)]

    @cached_property
    def _lattice(self) -> Lattice:
        """The segmentation of reversed text into reversed tokens; of equal costs, the longest token wins."""
        scores: dict[str, float] = {}
        ids: list[int] = []
        for text, token in self.vocabulary.ids.items():
            score = _rounded(self._scores[token] * _SCALE)
            if token not in self.vocabulary.byte | self.vocabulary.control and score > _INVALID:
                scores[text[::-1]] = score
                ids.append(token)
        return Lattice(scores, ids, _UNKNOWN)

    def _encode(self, text: str) -> list[int]:
        reverse = text.removeprefix(_BYTE_ORDER_MARK)[::-1]
        return self._lattice.encode(reverse, self._spelt)[::-1]

    def _spelt(self, run: str) -> list[int]:
        return [self._bytes[byte] for byte in reversed(run[::-1].encode())]

    def _before(self) -> list[int]:
        return []

    def _after(self) -> list[int]:
        return []

    def _render(self, token: int) -> bytes:
        return super()._render(token) if token in self.vocabulary.byte else self._decode(self.token_text(token))

    def _decode(self, text: str) -> bytes:
        return text.encode()


def _rounded(score: float) -> float:
    """Round to the nearest integer, halves away from zero."""
    return float(int(score + (0.5 if score >= 0 else -0.5)))
