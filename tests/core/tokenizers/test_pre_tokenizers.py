"""Every name of the table cuts text as llama.cpp does, or, where that only approximates, as the model publishes."""

from random import Random

import pytest
import regex
import tokenizers
from tokenizers import pre_tokenizers

from pumice.errors import TokenizerError
from pumice.tokenizers import bpe, from_metadata
from pumice.tokenizers.bpe import BPETokenizer
from pumice.tokenizers.pre_tokenizers import ROWS, pre_tokenizer
from tokenizer_fixtures import fixture, metadata

# llama.cpp's regular expressions cannot tell capitals from small letters, nor attach combining marks, beyond ASCII,
# and see every white space beyond ASCII as one character. The texts (by index) where that shows:
_CASE = {11, 12, 13}
APPROXIMATE = {
    **dict.fromkeys(("tekken", "gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), _CASE),
    **dict.fromkeys(("granite-embed-multi-97m", "tiny_aya", "cohere2moe", "kimi-k2", "youtu"), _CASE),
    "deepseek-llm": {14},
    "deepseek-coder": {14},
}


@pytest.mark.parametrize("name", [name for row in ROWS for name in row.names if row.byte_level])
def test_ids_by_name(name: str) -> None:
    known = fixture("pre")
    tokenizer = from_metadata(metadata("bpe", pre=name))
    for i, (text, expected) in enumerate(zip(known["texts"], known["expected"][known["names"][name]], strict=True)):
        if i not in APPROXIMATE.get(name, ()):
            assert tokenizer.tokenize(text, parse_special=False) == expected, text


CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
)
PUBLISHED = {
    "gpt-4o": CASED % (CONTRACTION, CONTRACTION) + r"|\p{N}{1,3}" + TAIL,  # tiktoken, openai_public.py: o200k_base
    "tekken": CASED % ("", "") + r"|\p{N}" + TAIL,  # mistral-common, tekken.json
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_cased_words_as_published(name: str) -> None:
    """Another regular expression engine gives the same words."""
    split = pre_tokenizers.Split(tokenizers.Regex(pre_tokenizer(name).patterns[0]), "isolated")
    for text in fixture("pre")["texts"]:
        if "ſ" not in text:
            words = [word for word, _ in split.pre_tokenize_str(text)] if text else []
            assert words == regex.findall(PUBLISHED[name], text)


_PIECES = (
    *("a", "b c", " d", "  ", "\n", "\n\n", "1", "23 456", ".", ",", "'s", "'ll", "\t", "é", "你好", "한", "A"),
    *("Bc", "dE fG"),
    *(" the", " of", "/", "(", ")", "-", "_", "x y", "\r\n", "\u0301", "ß ", "一 a", "a 一", "|", "\u3000"),
)
_WHOLE = ("exaone-moe", "superbpe", "gemma4", "sarvam-moe")  # words may have spaces


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.names[0])
def test_long_texts_are_cut_between_words(row, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = {"model": "gemma4"} if row.names[0] == "gemma4" else {"pre": row.names[0]}
    tokenizer = from_metadata(metadata("gemma4" if row.names[0] == "gemma4" else "bpe", **kind))
    assert isinstance(tokenizer, BPETokenizer)
    random = Random(row.names[0])
    texts = ["".join(random.choices(_PIECES, k=40)) for _ in range(10)]
    whole = [tokenizer.tokenize(text) for text in texts]
    monkeypatch.setattr(bpe, "_CHUNK", 8)
    assert any(len(list(tokenizer._chunks(text))) > 1 for text in texts) is (row.names[0] not in _WHOLE)
    assert [tokenizer.tokenize(text) for text in texts] == whole


def test_no_name_is_the_default_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    text = " ".join(fixture("pre")["texts"])
    default = from_metadata(metadata("bpe", pre="default")).tokenize(text)
    assert not caplog.messages
    assert from_metadata(metadata("bpe", pre=None)).tokenize(text) == default
    assert from_metadata(metadata("bpe", pre="")).tokenize(text) == default
    assert len(caplog.messages) == 2
    assert all(message.startswith("the file names no pre-tokenizer") for message in caplog.messages)
    assert from_metadata(metadata("bpe", pre="gpt-2")).tokenize(text) != default


def test_an_unknown_name_says_what_to_do() -> None:
    with pytest.raises(TokenizerError, match=r"unknown pre-tokenizer 'qwen22'; did you mean 'qwen2'\?.*a plugin can"):
        from_metadata(metadata("bpe", pre="qwen22"))


def test_words_that_are_tokens_ignore_merges_only_where_the_row_says_so() -> None:
    """A token that no merge makes is found as a whole word."""
    base = metadata("bpe")
    tokens = [*base["tokenizer.ggml.tokens"], "zqzqz"]
    types = [*base["tokenizer.ggml.token_type"], 1]
    whole = from_metadata(metadata("bpe", tokens=tokens, token_type=types, pre="llama-bpe"))
    merged = from_metadata(metadata("bpe", tokens=tokens, token_type=types, pre="dbrx"))
    assert whole.tokenize("zqzqz", add_special=False) == [len(tokens) - 1]
    assert len(merged.tokenize("zqzqz", add_special=False)) > 1
