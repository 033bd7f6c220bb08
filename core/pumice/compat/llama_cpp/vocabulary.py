"""The vocabulary of a ``Llama``, and facts of its model."""

from __future__ import annotations

from collections.abc import Sequence

import pumice
from pumice.tokenizers import Tokenizer

NONE, UNSPECIFIED = 0, -1


class VocabularyMethods:
    """Methods of ``Llama`` about tokens and the model's sizes."""

    _pumice: pumice.Model
    _pooling: int

    @property
    def _tokens_of(self) -> Tokenizer:
        return self._pumice.tokenizer

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """Return the tokens of a text in UTF-8; ``special``: spellings of control tokens become these."""
        return self._tokens_of.tokenize(text.decode("utf-8", errors="ignore"), add_bos, special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """Return the bytes of tokens; control tokens have some only with ``special``."""
        tokenizer = self._tokens_of
        text = b"".join(tokenizer.token_bytes(int(token), special=special) for token in tokens)
        begins = len(tokens) > 0 and tokens[0] == tokenizer.bos
        return text[1:] if begins and text.startswith(b" ") else text

    def tokenizer(self) -> LlamaTokenizer:
        """Return the tokenizer."""
        return LlamaTokenizer(self)

    def token_eos(self) -> int:
        """Return the token that ends texts; -1 without one."""
        return -1 if self._tokens_of.eos is None else self._tokens_of.eos

    def token_bos(self) -> int:
        """Return the token that begins texts; -1 without one."""
        return -1 if self._tokens_of.bos is None else self._tokens_of.bos

    def token_nl(self) -> int:
        """Return the token of a line break."""
        return self._tokens_of.tokenize_following("\n")[-1]

    def n_vocab(self) -> int:
        """Return the number of tokens."""
        return self._pumice.n_vocab

    def n_ctx(self) -> int:
        """Return the context in tokens."""
        return self._pumice.n_ctx

    def n_embd(self) -> int:
        """Return the values of a hidden state."""
        architecture = self._pumice.metadata["general.architecture"]
        return int(self._pumice.metadata[f"{architecture}.embedding_length"])

    def pooling_type(self) -> int:
        """Return the number of the pooling of embeddings: 0 none, 1 mean, 2 cls, 3 last, 4 rank."""
        architecture = self._pumice.metadata["general.architecture"]
        stated = self._pumice.metadata.get(f"{architecture}.pooling_type", NONE)
        return int(stated) if self._pooling == UNSPECIFIED else self._pooling


class LlamaTokenizer:
    """The tokenizer of a ``Llama``."""

    def __init__(self, llama: VocabularyMethods) -> None:
        self._llama = llama

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> list[int]:
        """Return the tokens of a text in UTF-8."""
        return self._llama.tokenize(text, add_bos, special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """Return the bytes of tokens."""
        return self._llama.detokenize(tokens, prev_tokens, special)

    def encode(self, text: str, add_bos: bool = True, special: bool = True) -> list[int]:
        """Return the tokens of a text."""
        return self._llama.tokenize(text.encode("utf-8", errors="ignore"), add_bos, special)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        return self._llama.detokenize(tokens).decode("utf-8", errors="ignore")
