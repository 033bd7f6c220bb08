"""Special tokens: which ids begin, end and separate texts, and which ones end a generation.

A file names some of them by key; others are known by their spelling, because many files leave the key out. The
spellings, and the exceptions at the end of this module, are those that llama.cpp knows (``llama-vocab.cpp``).
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pumice.errors import TokenizerError
from pumice.tokenizers.vocabulary import PREFIX, Vocabulary, value

_logger = logging.getLogger("pumice")

# Special tokens known by their spelling where the file does not name them: key -> spellings, the first found wins.
_SPELLINGS = {
    "fim_pre": (
        "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>",
        "<|prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>",
        "<|suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>",
        "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}  # fmt: skip

END_OF_GENERATION = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
)  # fmt: skip

# Marks of the harmony format, shown like any text.
_SHOWN = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")

_OLD_KEYS = {"fim_pre": "prefix", "fim_suf": "suffix", "fim_mid": "middle"}


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of the tokens with a meaning of their own; None where the vocabulary has none."""

    bos: int | None
    eos: int | None
    unk: int | None
    sep: int | None
    eog: frozenset[int]
    """All tokens that end a generation."""
    fim: Mapping[str, int]
    """Those of fill-in-the-middle that there are: fim_pre, fim_suf, fim_mid, fim_pad, fim_rep, fim_sep."""
    suppressed: frozenset[int]
    """Those that the file never wants generated."""

    @classmethod
    def from_metadata(
        cls, metadata: Mapping[str, Any], vocabulary: Vocabulary, **defaults: int | None
    ) -> "SpecialTokens":
        """Read the ids; ``defaults`` are those of a tokenizer model for ``bos``, ``eos``, ``unk`` and ``sep``.

        Tokens known by their spelling become control tokens in ``vocabulary``. An id outside the vocabulary, as some
        files have where they mean none, is as good as none, and a warning.
        """
        keys = {"bos": "bos", "eos": "eos", "unk": "unknown", "sep": "seperator"}  # misspelt in the format itself
        ids = {name: _token_id(metadata, key, vocabulary, defaults.get(name)) for name, key in keys.items()}
        fim = _fill_in_the_middle(metadata, vocabulary)
        eog = _end_of_generation(metadata, vocabulary, ids["eos"], fim)
        return cls(**ids, eog=eog, fim=fim, suppressed=_suppressed(metadata, vocabulary))


def _token_id(metadata: Mapping[str, Any], key: str, vocabulary: Vocabulary, default: int | None = None) -> int | None:
    key += "_token_id"
    found: int | None = value(metadata, key, int)
    if found is not None:
        if 0 <= found < len(vocabulary):
            return found
        _logger.warning(
            "%s%s is %d, outside the vocabulary of %d tokens: it is not used", PREFIX, key, found, len(vocabulary)
        )
    return default if default is not None and 0 <= default < len(vocabulary) else None


def _suppressed(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> frozenset[int]:
    """Ids outside the vocabulary mean nothing, as in llama.cpp."""
    key = f"{PREFIX}suppress_tokens"
    found = metadata.get(key, [])
    tokens = found.tolist() if hasattr(found, "tolist") else found
    if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
        raise TokenizerError(f"metadata key {key} must be a list of token ids")
    return frozenset(token for token in tokens if 0 <= token < len(vocabulary))


def _fill_in_the_middle(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> dict[str, int]:
    ids = vocabulary.ids
    fim = {}
    for name, spellings in _SPELLINGS.items():
        token = _token_id(metadata, name, vocabulary)
        if token is None and name in _OLD_KEYS:
            token = _token_id(metadata, _OLD_KEYS[name], vocabulary)
        if token is None:
            token = next((ids[text] for text in spellings if text in ids), None)
            if token is not None:
                vocabulary.control.add(token)
        if token is not None:
            fim[name] = token
    return fim


def _end_of_generation(
    metadata: Mapping[str, Any], vocabulary: Vocabulary, eos: int | None, fim: Mapping[str, int]
) -> frozenset[int]:
    ids = vocabulary.ids
    eog = {ids[text] for text in END_OF_GENERATION if text in ids}
    vocabulary.control |= eog
    eog |= {token for name, token in fim.items() if name in ("fim_pad", "fim_rep", "fim_sep")}
    for text in _SHOWN:
        if text in ids:
            _retype_as_user_defined(ids[text], vocabulary)
    for token in (eos, _token_id(metadata, "eot", vocabulary), _token_id(metadata, "eom", vocabulary)):
        if token is not None:
            eog.add(token)
    return frozenset(_without_exceptions(eog, vocabulary))


def _without_exceptions(eog: set[int], vocabulary: Vocabulary) -> set[int]:
    texts = {vocabulary.tokens[token] for token in eog}
    # With harmony's (gpt-oss) or Solar's marks, <|end|> ends a message, not the generation.
    calls = bool(texts & {"<|call|>", "<|calls|>"})
    if calls and texts & {"<|return|>", "<|flush|>"} and "<|end|>" in texts:
        eog = eog - {vocabulary.ids["<|end|>"]}
        _retype_as_user_defined(vocabulary.ids["<|end|>"], vocabulary)
    # Gemma 4 and PLaMo have </s> as a piece of text like any other.
    if texts & {"<|tool_response>", "<|plamo:eos|>"} and "</s>" in texts:
        eog = eog - {vocabulary.ids["</s>"]}
        _retype_as_normal(vocabulary.ids["</s>"], vocabulary)
    return eog


def _retype_as_normal(token: int, vocabulary: Vocabulary) -> None:
    for kind in (
        vocabulary.unknown, vocabulary.control, vocabulary.user_defined, vocabulary.byte, vocabulary.silent,
    ):  # fmt: skip
        kind.discard(token)


def _retype_as_user_defined(token: int, vocabulary: Vocabulary) -> None:
    _retype_as_normal(token, vocabulary)
    vocabulary.user_defined.add(token)
