"""Ids to text: what goes in comes out, one token at a time as well as all at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice.errors import TokenizerError
from tokenizer_fixtures import NAMES, small

TEXT = st.text(st.characters(codec="utf-8"), max_size=60)


@given(TEXT)
def test_byte_level_bpe_gives_any_text_back(text: str) -> None:
    tokenizer = small("bpe")
    assert tokenizer.detokenize(tokenizer.tokenize(text, parse_special=False)) == text
    assert tokenizer.detokenize(tokenizer.tokenize(text, add_special=False), special=True) == text


@given(st.text(st.characters(codec="utf-8", exclude_characters="▁"), max_size=60))
@pytest.mark.parametrize("name", ["spm", "spm-no-prefix", "gemma4"])
def test_sentencepiece_gives_back_any_text_without_its_space_mark(name: str, text: str) -> None:
    tokenizer = small(name)
    assert tokenizer.detokenize(tokenizer.tokenize(text, parse_special=False)) == text


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_pushing_tokens_gives_the_text_of_all(name: str, data: st.DataObject) -> None:
    tokenizer = small(name)
    ids = data.draw(st.lists(st.integers(0, tokenizer.n_vocab - 1), max_size=30))
    special = data.draw(st.booleans())
    decoder = tokenizer.decoder(special=special)
    pieces = [decoder.push(token) for token in ids]
    assert "".join(pieces) + decoder.flush() == tokenizer.detokenize(ids, special=special)


def test_a_character_is_never_split() -> None:
    tokenizer = small("spm-no-prefix")
    decoder = tokenizer.decoder()
    assert [decoder.push(token) for token in tokenizer.tokenize("🚀", add_special=False)] == ["", "", "", "🚀"]
    assert decoder.flush() == ""


def test_invalid_bytes_show_when_nothing_can_complete_them() -> None:
    tokenizer = small("spm-no-prefix")
    byte = {value: tokenizer.vocabulary.ids[f"<0x{value:02X}>"] for value in (0xF0, 0x9F, 0x41)}
    decoder = tokenizer.decoder()
    assert [decoder.push(byte[value]) for value in (0xF0, 0x9F, 0x41, 0xF0)] == ["", "", "\ufffdA", ""]
    assert decoder.flush() == "\ufffd"
    assert decoder.flush() == ""


@pytest.mark.parametrize("token", [-1, 10**9])
def test_an_id_outside_the_vocabulary(token: int) -> None:
    with pytest.raises(TokenizerError, match=f"token {token} is outside the vocabulary of 7"):
        small("bpe").detokenize([token])
