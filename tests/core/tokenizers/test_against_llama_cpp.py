"""Small vocabularies, one for each way of tokenizing, give the ids and texts that llama.cpp gives."""

import re
import unicodedata

import pytest

from pumice.tokenizers import Tokenizer, from_metadata
from tokenizer_fixtures import NAMES, fixture, metadata, small

WORDPIECE_PUNCTUATION = ("▁.", "▁,", "▁?", "▁!")  # loses its space here; llama.cpp takes it away afterwards


@pytest.mark.parametrize("name", NAMES)
def test_ids(name: str) -> None:
    tokenizer = small(name)
    for text, (parsed, added) in fixture(name)["cases"]:
        if name.startswith("wpm") and not has_common_words(text):
            continue
        assert tokenizer.tokenize(text, add_special=False, parse_special=True) == parsed, text
        n_alone = control_tokens(tokenizer, tokenizer.tokenize(""))
        if control_tokens(tokenizer, added) <= n_alone:  # or docs/tokenizers.md
            assert tokenizer.tokenize(text, add_special=True, parse_special=False) == added, text


def has_common_words(text: str) -> bool:
    """True unless llama.cpp splits or normalizes a text otherwise than transformers, which test_wpm.py compares."""
    decomposed = unicodedata.normalize("NFD", text)
    return not re.search("[\x0b\x85\u1100-\u11ff]", decomposed) and "Mc" not in map(unicodedata.category, decomposed)


def control_tokens(tokenizer: Tokenizer, ids: list[int]) -> int:
    """Number of control tokens among the ids, without unknown ones."""
    return sum(token in tokenizer.vocabulary.control and token != tokenizer.unk for token in ids)


@pytest.mark.parametrize("name", NAMES)
def test_special_ids_and_flags(name: str) -> None:
    tokenizer, info = small(name), fixture(name)["info"]
    assert (-1 if tokenizer.bos is None else tokenizer.bos) == info["bos"]
    assert (-1 if tokenizer.eos is None else tokenizer.eos) == info["eos"]
    flags = (tokenizer.add_bos, tokenizer.add_eos, tokenizer.add_sep)
    assert flags == (info["add_bos"], info["add_eos"], info["add_sep"])
    assert sorted(tokenizer.eog) == info["eog"]


# llama.cpp reads the plain text of these tokens as if its characters spelt bytes.
@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("whitespace")])
def test_text_of_each_token(name: str) -> None:
    """In the middle of a text, where no space is taken away."""
    tokenizer = small(name)
    for token, shown, with_special in fixture(name)["info"]["pieces"]:
        if tokenizer.token_text(token) in WORDPIECE_PUNCTUATION:
            continue
        for special, expected in ((False, shown), (True, with_special)):
            decoder = tokenizer.decoder(special=special, continues=True)
            text = decoder.push(token) + decoder.flush()
            assert text == expected.encode("latin-1").decode(errors="replace")


@pytest.mark.parametrize("name", NAMES)
def test_of_equal_texts_the_lower_id_encodes(name: str) -> None:
    """Published files have such vocabularies; both ids are read as the text."""
    info = fixture(name)["metadata"]
    tokens, types = info["tokenizer.ggml.tokens"], info["tokenizer.ggml.token_type"]
    others = {token for _, (parsed, added) in fixture(name)["cases"] for token in (*parsed, *added)}
    twice = [i for i in sorted(others) if types[i] == 1][:3] or sorted(others)[:1]
    changes = {"tokens": [*tokens, *(tokens[i] for i in twice)], "token_type": [*types, *(types[i] for i in twice)]}
    if scores := info.get("tokenizer.ggml.scores"):
        changes["scores"] = [*scores, *(scores[i] for i in twice)]
    tokenizer = from_metadata(metadata(name, **changes))
    for text, _ in fixture(name)["cases"]:
        assert tokenizer.tokenize(text, parse_special=True) == small(name).tokenize(text, parse_special=True)
    for i, token in enumerate(twice):
        pair = [tokenizer.token_bytes(id, special=True) for id in (token, len(tokens) + i)]
        assert pair[0] == pair[1]
