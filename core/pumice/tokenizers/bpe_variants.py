"""BPE over parts of a text: within words (GGUF's tokenizer model "whitespace"), and outside of DNA ("hybriddna")."""

import re
from collections.abc import Mapping
from typing import Any

from pumice.tokenizers.bpe import BPETokenizer
from pumice.tokenizers.pre_tokenizers import PreTokenizer
from pumice.tokenizers.vocabulary import value

_DNA, _END_OF_DNA, _UNKNOWN_DNA = "<dna>", "</dna>", "<oov>"
_DNA_REGION = re.compile(r"<dna>(.*?)(</dna>|\Z)", re.DOTALL)
# Letters of DNA per token, and the suffix of such tokens in a file, which distinguishes them from equal spellings.
_K = 6
_K_MER_MARK = "\ue000"


class WhitespaceTokenizer(BPETokenizer):
    """White space only separates words, and is dropped; text may be lowercased."""

    def __init__(self, metadata: Mapping[str, Any], pre_tokenizers: Mapping[str, PreTokenizer]) -> None:
        super().__init__(metadata, pre_tokenizers)
        keeps_case = value(metadata, "pre", str, "") == "whitespace"
        self._lowercase: bool = value(metadata, "normalizer.lowercase", bool, not keeps_case)

    def _words(self) -> list[Any]:
        from tokenizers import Regex, pre_tokenizers

        return [pre_tokenizers.Split(Regex(r"\s+"), "removed"), *super()._words()]

    def _encode(self, text: str) -> list[int]:
        return super()._encode("".join(char.lower()[0] for char in text) if self._lowercase else text)


class HybridDNATokenizer(BPETokenizer):
    """Text between ``<dna>`` and ``</dna>`` is split into k-mers of six letters, the last one padded with A."""

    def _encode(self, text: str) -> list[int]:
        ids = self.vocabulary.ids
        if not {_DNA, _END_OF_DNA, _UNKNOWN_DNA} <= ids.keys():
            return super()._encode(text)
        tokens: list[int] = []
        end = 0
        for region in _DNA_REGION.finditer(text):
            tokens += super()._encode(text[end : region.start()])
            tokens += (ids[_DNA], *self._k_mers(region[1]), *([ids[_END_OF_DNA]] if region[2] else []))
            end = region.end()
        return tokens + super()._encode(text[end:])

    def _k_mers(self, text: str) -> list[int]:
        letters = text.encode().upper()
        letters += b"A" * (-len(letters) % _K)
        k_mers = (letters[i : i + _K].decode(errors="replace") for i in range(0, len(letters), _K))
        ids = self.vocabulary.ids
        return [ids.get(k_mer + _K_MER_MARK, ids[_UNKNOWN_DNA]) for k_mer in k_mers]

    def _decode(self, text: str) -> bytes:
        return super()._decode(text.removesuffix(_K_MER_MARK))
