"""SentencePiece BPE (GGUF's tokenizer model "llama"): adjacent symbols that form a token merge, best score first.

Kudo and Richardson, "SentencePiece", 2018 (https://arxiv.org/abs/1808.06226). The order of merging is that of
SentencePiece's ``bpe_model.cc`` and of llama.cpp: highest score first, leftmost among equals.
"""

from array import array
from collections.abc import Iterator, Mapping
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any, ClassVar

from pumice.errors import TokenizerError
from pumice.tokenizers.base import Tokenizer
from pumice.tokenizers.special import SpecialTokens
from pumice.tokenizers.vocabulary import PREFIX, Vocabulary, byte_token, numbers, value

SPACE = "▁"

_CACHE_SIZE = 1 << 16
_CACHED_LENGTH = 32
_POSITION = 32  # bits of a position in a text
_MOST = (1 << _POSITION) - 1
_NOTHING = (-1, "")  # no token: an order that no entry has


class SPMTokenizer(Tokenizer):
    """Merges characters by score; spaces are written ``▁``."""

    kind: ClassVar[str] = "spm"

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        vocabulary = Vocabulary.from_metadata(metadata)
        super().__init__(
            metadata,
            vocabulary,
            special=SpecialTokens.from_metadata(metadata, vocabulary, bos=1, eos=2, unk=0),
            add_bos=True,
            space_prefix=value(metadata, "add_space_prefix", bool, True),
        )
        self._scores = numbers(metadata, "scores", self.n_vocab) or [0.0] * self.n_vocab
        if any(score != score for score in self._scores):
            raise TokenizerError(f"{PREFIX}scores contains NaN")
        self._cache: dict[str, list[int]] = {}

    @cached_property
    def _neighbours(self) -> set[tuple[str, str]]:
        """Pairs of adjacent characters in tokens."""
        joined = "\0".join(self.vocabulary.tokens)
        return set(pairwise(joined))

    def _encode(self, text: str) -> list[int]:
        if self._space_prefix:
            text = " " + text
        ids: list[int] = []
        for segment in self._segments(text.replace(" ", SPACE)):
            tokens = self._cache.get(segment)
            if tokens is None:
                tokens = self._merge(segment)
                if len(segment) <= _CACHED_LENGTH and len(self._cache) < _CACHE_SIZE:
                    self._cache[segment] = tokens
            ids += tokens
        return ids

    def _segments(self, text: str) -> Iterator[str]:
        """Split ``text`` where no token can span the cut, so that segments can be merged and cached one by one."""
        neighbours = self._neighbours
        start = 0
        for end, pair in enumerate(pairwise(text), 1):
            if pair not in neighbours:
                yield text[start:end]
                start = end
        yield text[start:]

    @cached_property
    def _mergeable(self) -> dict[str, int]:
        """Tokens that text can consist of: all except control tokens."""
        control = self.vocabulary.control
        return {text: token for text, token in self.vocabulary.ids.items() if token not in control}

    @cached_property
    def _keys(self) -> dict[str, tuple[int, str]]:
        """The order of each token among merges, shifted to leave room for a position, and its text.

        Tokens of equal scores have equal orders.
        """
        ranks = {score: rank for rank, score in enumerate(sorted(set(self._scores), reverse=True))}
        return {text: (ranks[self._scores[token]] << _POSITION, text) for text, token in self._mergeable.items()}

    def _merge(self, text: str) -> list[int]:
        """Merge the characters of ``text`` into tokens, with a heap of the merges that are possible.

        An entry of the heap is one integer, the order of the merged token and the position of the left symbol, and
        links between symbols are arrays: about 60 bytes per character.
        """
        keys = self._keys
        symbols: list[str] = list(text)  # a merged symbol replaces its first character; "" replaces the others
        end = len(symbols)
        before = array("q", range(-1, end - 1))
        after = array("q", range(1, end + 1))
        heap: list[int] = []

        def propose(left: int, right: int) -> None:
            key = keys.get(symbols[left] + symbols[right])
            if key:
                heappush(heap, key[0] | left)

        for left, (first, second) in enumerate(pairwise(symbols)):
            key = keys.get(first + second)
            if key:
                heap.append(key[0] | left)
        heapify(heap)
        while heap:
            entry = heappop(heap)
            left = entry & _MOST
            right = after[left]
            if not symbols[left] or right == end:
                continue
            order, merged = keys.get(symbols[left] + symbols[right], _NOTHING)
            if order | left != entry:
                continue  # one of the two has merged with another symbol meanwhile
            symbols[left], symbols[right] = merged, ""
            following = after[left] = after[right]
            if following < end:
                before[following] = left
                propose(left, following)
            if (preceding := before[left]) >= 0:
                propose(preceding, left)
        return [token for symbol in symbols if symbol for token in self._symbol_ids(symbol)]

    def _symbol_ids(self, symbol: str) -> list[int]:
        """Return a symbol's token, or, for an unknown character, the tokens of its bytes or the unknown token."""
        ids = self._mergeable
        if symbol in ids:
            return [ids[symbol]]
        byte_tokens = [ids.get(byte_token(byte)) for byte in symbol.encode()]
        present = [token for token in byte_tokens if token is not None]
        if len(present) == len(byte_tokens):
            return present
        return [] if self.unk is None else [self.unk]

    def _decode(self, text: str) -> bytes:
        return text.replace(SPACE, " ").encode()
