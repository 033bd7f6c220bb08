"""Metadata that does not describe a tokenizer gives one clear line."""

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.errors import TokenizerError
from pumice.tokenizers import from_metadata
from pumice.tokenizers.charsmap import Charsmap
from tokenizer_fixtures import fixture, metadata, small

BPE_MERGES = metadata("bpe")["tokenizer.ggml.merges"]
SPM_TOKENS = metadata("spm")["tokenizer.ggml.tokens"]
SPM_TYPES = metadata("spm")["tokenizer.ggml.token_type"]
RWKV_TOKENS = metadata("rwkv")["tokenizer.ggml.tokens"]
UNIGRAM_SIZE = len(metadata("unigram")["tokenizer.ggml.tokens"])
CHARSMAP = metadata("unigram")["tokenizer.ggml.precompiled_charsmap"]


def charsmap_of_a(step: int, value: int) -> list[int]:
    """A table that replaces ``a``: ``step`` leads from its unit to ``value``'s, unit 97 if it is 1."""
    units = np.zeros(128, "<u4")
    units[[0, 1 ^ ord("a"), 97]] = 1 << 10, ord("a") | 1 << 8 | step << 10, value
    return [*units.nbytes.to_bytes(4, "little"), *units.tobytes(), 0]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("spm", {"tokens": None}, "tokens is missing"),
        ("spm", {"tokens": []}, "tokens is empty"),
        ("spm", {"tokens": "abc"}, "tokens is not an array of strings"),
        ("spm", {"tokens": [1, 2]}, "tokens is not an array of strings"),
        ("spm", {"tokens": [*SPM_TOKENS[:-1], "\ud800"]}, r"'\\ud800'\) is not valid Unicode"),
        ("spm", {"tokens": SPM_TOKENS[:-1]}, "token_type has 483 values for 482 tokens"),
        ("spm", {"token_type": [1, 2]}, "token_type has 2 values for 483 tokens"),
        ("spm", {"token_type": ["a"] * 483}, "token_type is not an array of numbers"),
        ("spm", {"token_type": 7}, "token_type is not an array of numbers"),
        ("spm", {"token_type": [6, *SPM_TYPES[1:]]}, "byte token 0 is '<unk>', expected the form <0xNN>"),
        ("spm", {"scores": [0.0]}, "scores has 1 values for 483 tokens"),
        ("spm", {"scores": np.zeros((483, 2))}, "scores is not an array of numbers"),
        ("spm", {"scores": [float("nan")] * 483}, "scores contains NaN"),
        ("spm", {"bos_token_id": "1"}, "bos_token_id is of type str, not int"),
        ("spm", {"bos_token_id": True}, "bos_token_id is of type bool, not int"),
        ("spm", {"add_bos_token": 1}, "add_bos_token is of type int, not bool"),
        ("spm", {"model": ["llama"]}, "model is of type list, not str"),
        ("bpe", {"merges": None}, "merges is missing"),
        ("bpe", {"merges": [*BPE_MERGES, "a xyz"]}, "'a' and 'xyz' are not two tokens that form a third"),
        ("bpe", {"merges": [*BPE_MERGES, "< >"]}, "'<' and '>' are not two tokens"),
        ("bpe", {"merges": [*BPE_MERGES, "a"]}, "'a' and '' are not two tokens"),
        ("bpe", {"merges": [f"{'x' * 99} y"]}, "are not two tokens"),  # longer than any token
        ("bpe", {"pre": 3}, "pre is of type int, not str"),
        ("bpe", {"bos_token_id": None, "pre": "glm4", "add_bos_token": True}, "names no bos_token_id"),
        ("gemma4", {"eos_token_id": None, "add_eos_token": True}, "names no eos_token_id"),
        ("wpm", {"unknown_token_id": None}, "unknown_token_id is missing"),
        ("wpm", {"seperator_token_id": None}, "seperator_token_id is missing"),
        ("unigram", {"scores": None}, "scores is missing; this kind of tokenizer needs it"),
        ("unigram", {"scores": [float("-inf")] * UNIGRAM_SIZE}, "scores has a value that is infinite"),
        ("unigram", {"remove_extra_whitespaces": 1}, "remove_extra_whitespaces is of type int, not bool"),
        ("unigram", {"precompiled_charsmap": "abc"}, "precompiled_charsmap is not an array of bytes"),
        ("unigram", {"precompiled_charsmap": [0.5, 1.0]}, "precompiled_charsmap is not an array of bytes"),
        ("unigram", {"precompiled_charsmap": [1, [2, 3]]}, "precompiled_charsmap is not an array of bytes"),
        ("unigram", {"precompiled_charsmap": [256]}, "precompiled_charsmap is not an array of bytes"),
        ("unigram", {"precompiled_charsmap": [4, 0]}, "do not fit in 2 bytes"),
        ("unigram", {"precompiled_charsmap": [255] * 12}, "do not fit in 12 bytes"),
        ("unigram", {"precompiled_charsmap": CHARSMAP[: 4 + CHARSMAP[0] + 256 * CHARSMAP[1]]}, "do not fit in"),
        ("unigram", {"precompiled_charsmap": charsmap_of_a(1, 1 << 31 | 5)}, "no complete replacement at byte 5 of 1"),
        ("unigram", {"precompiled_charsmap": charsmap_of_a(4096, 0)}, "unit of a value, 4192, exceeds the 128 units"),
        ("rwkv", {"tokens": [*RWKV_TOKENS[:-1], r"\xg0"]}, r"'\\\\xg0' has an escape that is not \\xNN"),
        ("plamo2", {"scores": None}, "scores is missing"),
        ("plamo2", {"token_type": None}, "byte token <0x00> is missing; PLaMo 2 needs all 256"),
        ("whitespace", {"merges": None}, "merges is missing"),
        ("whitespace", {"normalizer.lowercase": "no"}, "normalizer.lowercase is of type str, not bool"),
    ],
)
def test_inconsistent_metadata(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerError, match=message) as error:
        from_metadata(metadata(name, **changes)).tokenize("a")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("key", "token"),
    [("bos_token_id", 483), ("eos_token_id", -1), ("eot_token_id", 2**32 - 1), ("unknown_token_id", 483)],
)
def test_a_special_token_beyond_the_vocabulary_is_not_used(
    key: str, token: int, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = from_metadata(metadata("spm", **{key: token}))
    assert caplog.messages == [f"tokenizer.ggml.{key} is {token}, outside the vocabulary of 483 tokens; it is ignored"]
    without = from_metadata(metadata("spm", **{key: None}))
    for text, _ in fixture("spm")["cases"]:
        assert tokenizer.tokenize(text) == without.tokenize(text)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("xyz", r"'xyz' is not supported \(known: bert, .*llama.*a plugin can add it"),
        ("none", "the file has no tokenizer"),
        ("no_vocab", "the file has no tokenizer"),
        (None, "the file has no tokenizer"),
    ],
)
def test_tokenizer_models_without_an_implementation(model: str | None, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        from_metadata(metadata("spm", model=model))


@pytest.mark.parametrize("name", ["spm", "bpe", "wpm", "unigram", "rwkv", "plamo2", "hybriddna", "whitespace"])
def test_text_with_a_lone_surrogate(name: str) -> None:
    with pytest.raises(TokenizerError, match="lone surrogate"):
        small(name).tokenize("a\ud800b")


@given(st.binary(max_size=200))
def test_a_charsmap_of_any_bytes(data: bytes) -> None:
    size = len(data) // 8 * 4
    with suppress(TokenizerError):
        Charsmap(list(size.to_bytes(4, "little") + data)).normalize("any text")
