"""Byte-level BPE (GGUF's tokenizer models "gpt2" and "gemma4"), run by Hugging Face ``tokenizers``.

Sennrich et al., 2015 (https://arxiv.org/abs/1508.07909); bytes as printable characters: Radford et al., "GPT-2", 2019.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar

from pumice.errors import TokenizerError
from pumice.guard import guarded
from pumice.tokenizers.base import Tokenizer
from pumice.tokenizers.merging import WordMerger
from pumice.tokenizers.pre_tokenizers import PreTokenizer, pre_tokenizer
from pumice.tokenizers.special import SpecialTokens
from pumice.tokenizers.vocabulary import PREFIX, Vocabulary, strings, value

if TYPE_CHECKING:
    import tokenizers
    from tokenizers import models, pre_tokenizers

_logger = logging.getLogger("pumice")

SPACE = "▁"

_CHUNK = 1 << 16  # characters that are merged at once
_SHORT = 1 << 11  # maximum characters that are merged in Python while the library's tokenizer is not made
_LARGE = 50_000  # minimum tokens of a vocabulary whose library tokenizer takes half a second to make
_CUT = re.compile("[a-z](?= [a-z])")
_PROBE = "by one word at a time a text is read"

# The spelling of the unknown token; the empty text occurs nowhere.
_UNKNOWN = ""


def _byte_symbols() -> dict[str, int]:
    """Return the printable characters that spell bytes in GPT-2's vocabulary, with their bytes."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    symbols = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    return symbols | {chr(256 + i): byte for i, byte in enumerate(others)}


BYTES = _byte_symbols()


class BPETokenizer(Tokenizer):
    """Splits text into words by the patterns of a pre-tokenizer, then applies the merges of the file in order."""

    kind: ClassVar[str] = "bpe"

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], pre_tokenizers: Mapping[str, PreTokenizer]) -> "BPETokenizer":
        return cls(metadata, pre_tokenizers)

    def __init__(self, metadata: Mapping[str, Any], pre_tokenizers: Mapping[str, PreTokenizer]) -> None:
        gemma = metadata["tokenizer.ggml.model"] == "gemma4"
        pre = "gemma4" if gemma else _pre(metadata)
        row = pre_tokenizer(pre, pre_tokenizers)
        vocabulary = Vocabulary.from_metadata(metadata)
        special = SpecialTokens.from_metadata(
            metadata,
            vocabulary,
            bos=11 if row.has_default_bos and not gemma else None,
            eos=None if gemma else 11,
        )
        super().__init__(metadata, vocabulary, special=special, add_bos=row.add_bos, add_sep=row.add_sep)
        self.add_bos |= row.force_bos
        self._row = row
        # Symbols without a token are dropped after merging, so that their neighbours do not become adjacent.
        nameless = [symbol for symbol in BYTES if symbol not in vocabulary.ids] if row.byte_level else [_UNKNOWN]
        self._nameless = {symbol: self.n_vocab + i for i, symbol in enumerate(nameless)}
        self._metadata = metadata
        if not row.names:  # patterns of a plugin, which may be wrong
            guarded(lambda: self._splitter, f"pre-tokenizer {pre!r}")()

    @cached_property
    def _bpe(self) -> "tokenizers.Tokenizer":
        """The merging tokenizer, built for the first long text: decoding and prompts of token ids do not need it."""
        from tokenizers import Tokenizer

        tokenizer = Tokenizer(_model(self.vocabulary.ids | self._nameless, _pairs(self._merges()), self._row))
        tokenizer.pre_tokenizer = self._splitter
        return tokenizer

    def _merges(self) -> list[str]:
        """Return the merges in order, as ``"left right"``."""
        if self._row.merges_optional and PREFIX + "merges" not in self._metadata:
            return []
        return strings(self._metadata, "merges")

    def prepare(self) -> None:
        _ = self._bpe

    @cached_property
    def _merger(self) -> WordMerger:
        return WordMerger(self.vocabulary.ids | self._nameless, self._merges, self._row.ignore_merges)

    @cached_property
    def _splitter(self) -> "pre_tokenizers.PreTokenizer":
        """The pre-tokenizers that split text into words."""
        from tokenizers import pre_tokenizers

        return pre_tokenizers.Sequence(self._words())

    def _words(self) -> list[Any]:
        from tokenizers import Regex, pre_tokenizers

        words: list[Any] = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self._row.patterns]
        if self._row.byte_level:
            words.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        return words

    def _encode(self, text: str) -> list[int]:
        if self._row.marks_spaces:
            text = text.replace(" ", SPACE)
        if not self._row.newline_tokens:
            return self._encode_words(text)
        ids: list[int] = []
        for run in re.findall(r"\n+|[^\n]+", text):
            newlines = self.vocabulary.ids.get(run) if run[0] == "\n" else None
            ids += self._encode_words(run) if newlines is None else [newlines]
        return ids

    @cached_property
    def _cuts_at_spaces(self) -> bool:
        """True if every space between two small letters begins a word; a plugin's patterns are not known to."""
        if not self._row.names:
            return False
        words = self._splitter.pre_tokenize_str(_PROBE)
        return {match.end() for match in _CUT.finditer(_PROBE)} <= {begin for _, (begin, _) in words}

    def _chunks(self, text: str) -> Iterator[str]:
        """Cut a long text between words, since the words of a text take much memory while they are merged."""
        begin = 0
        while len(text) - begin > _CHUNK and self._cuts_at_spaces:
            cut = _CUT.search(text, begin + _CHUNK)
            if cut is None:
                break
            yield text[begin : cut.end()]
            begin = cut.end()
        yield text[begin:]

    def _encode_words(self, text: str) -> list[int]:
        if len(text) <= _CHUNK:
            return self._encode_chunk(text)
        ids: list[int] = []
        for chunk in self._chunks(text):
            ids += self._encode_chunk(chunk)
        return ids

    def _encode_chunk(self, text: str) -> list[int]:
        try:
            ids = self._merged(text) if len(text) <= _SHORT and self._merges_in_python else None
            if ids is None:
                # The fast variant does not compute the offsets of tokens.
                ids = self._bpe.encode_batch_fast([text], add_special_tokens=False)[0].ids
        except BaseException as error:
            if not _is_panic(error):
                raise
            raise TokenizerError("the text has too long a run, such as of white space, to split into words") from None
        return [token for token in ids if token < self.n_vocab] if self._nameless else ids

    @property
    def _merges_in_python(self) -> bool:
        return "_bpe" not in self.__dict__ and self._row.byte_level and self.n_vocab > _LARGE

    def _merged(self, text: str) -> list[int] | None:
        """Return the tokens of a text merged in Python, or None if a word is too long for that."""
        ids: list[int] = []
        for word, _ in self._splitter.pre_tokenize_str(text):
            tokens = self._merger.tokens(word)
            if tokens is None:
                return None
            ids += tokens
        return ids

    def _decode(self, text: str) -> bytes:
        if not self._row.byte_level:
            return (text.replace(SPACE, " ") if self._row.marks_spaces else text).encode()
        try:
            return bytes([BYTES[char] for char in text])
        except KeyError:  # an added token, written as it is
            return text.encode()


def _pre(metadata: Mapping[str, Any]) -> str:
    """Return the name of the pre-tokenizer; files older than the key have none."""
    name: str = value(metadata, "pre", str, "")
    if not name:
        _logger.warning(
            "the file names no pre-tokenizer (%spre); 'default' is used, which may differ from training",
            PREFIX,
        )
    return name or "default"


def _pairs(merges: list[str]) -> list[tuple[str, str]]:
    """Return the pairs to merge, in order."""
    if len(set(merges)) < len(merges):
        merges = list(dict.fromkeys(merges))  # the first occurrence counts
    return [(left, right) for left, _, right in map(str.partition, merges, repeat(" "))]


def _model(ids: dict[str, int], merges: list[tuple[str, str]], row: PreTokenizer) -> "models.BPE":
    from tokenizers import models

    unknown = {} if row.byte_level else {"byte_fallback": True, "unk_token": _UNKNOWN}
    try:
        return models.BPE(ids, merges, ignore_merges=row.ignore_merges, **unknown)
    except BaseException as error:  # Hugging Face raises nothing more specific, and panics for a merge that is too long
        if not (isinstance(error, Exception) or _is_panic(error)):
            raise
        raise TokenizerError(f"{PREFIX}merges: {_wrong_merge(ids, merges) or error}") from None


def _is_panic(error: BaseException) -> bool:
    """Return True for a panic of Rust, whose class no module exports."""
    return type(error).__name__ == "PanicException"


def _wrong_merge(ids: Mapping[str, int], merges: list[tuple[str, str]]) -> str:
    """Return the problem of the first pair that does not join two tokens to a third one; empty without one."""
    for left, right in merges:
        if left not in ids or right not in ids or left + right not in ids:
            return f"{left!r} and {right!r} are not two tokens that form a third one"
    return ""
