"""Special tokens: the ids that begin, end and separate texts, and those that end a generation.

A file names some of them by key; others are recognized by their spelling, because many files omit the key. The
spellings, and the exceptions at the end of this module, are those of llama.cpp (``llama-vocab.cpp``).
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pumice.errors import TokenizerError
from pumice.tokenizers.vocabulary import PREFIX, Vocabulary, value

_logger = logging.getLogger("pumice")

# Special tokens recognized by spelling if the file does not name them: key -> spellings, of which the first counts.
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

# Marks of the harmony format, which are rendered as text.
_SHOWN = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")

_OLD_KEYS = {"fim_pre": "prefix", "fim_suf": "suffix", "fim_mid": "middle"}


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of special tokens; None for those that the vocabulary lacks."""

    bos: int | None
    eos: int | None
    unk: int | None
    sep: int | None
    eog: frozenset[int]
    """All tokens that end a generation."""
    fim: Mapping[str, int]
    """Present fill-in-the-middle tokens by name: fim_pre, fim_suf, fim_mid, fim_pad, fim_rep, fim_sep."""
    suppressed: frozenset[int]
    """Tokens that the file excludes from generation."""

    @classmethod
    def from_metadata(
        cls, metadata: Mapping[str, Any], vocabulary: Vocabulary, **defaults: int | None
    ) -> "SpecialTokens":
        """Read the ids; ``defaults`` are those of a tokenizer model for ``bos``, ``eos``, ``unk`` and ``sep``.

        Tokens recognized by spelling become control tokens in ``vocabulary``. An id outside the vocabulary, which some
        files use for none, is ignored with a warning.
        """
        keys = {"bos": "bos", "eos": "eos", "unk": "unknown", "sep": "seperator"}  # "seperator" is GGUF's spelling
        ids = {name: _token_id(metadata, key, vocabulary, defaults.get(name)) for name, key in keys.items()}
        fim = _fill_in_the_middle(metadata, vocabulary)
        eog = _end_of_generation(metadata, vocabulary, ids["eos"], fim)
        return cls(**ids, eog=eog, fim=fim, suppressed=_suppressed(metadata, vocabulary))


def _token_id(metadata: Mapping[str, Any], key: str, vocabulary: Vocabulary, default: int | None = None) -> int | None:
    key += "_token_id"
    token: int | None = value(metadata, key, int)
    if token is not None:
        if 0 <= token < len(vocabulary):
            return token
        _logger.warning(
            "%s%s is %d, outside the vocabulary of %d tokens; it is ignored", PREFIX, key, token, len(vocabulary)
        )
    return default if default is not None and 0 <= default < len(vocabulary) else None


def _suppressed(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> frozenset[int]:
    """Return the suppressed tokens; ids outside the vocabulary are ignored, as in llama.cpp."""
    key = f"{PREFIX}suppress_tokens"
    ids = metadata.get(key, [])
    tokens = ids.tolist() if hasattr(ids, "tolist") else ids
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
    # In Gemma 4 and PLaMo, </s> is an ordinary piece of text.
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
