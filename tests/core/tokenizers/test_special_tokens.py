"""Special tokens: where they are found in text, which strip white space, which end a generation."""

import pytest

from pumice.tokenizers import from_metadata
from pumice.tokenizers.partition import Partition
from tokenizer_fixtures import NAMES, metadata, small, with_tokens


def test_the_longer_token_is_found_first() -> None:
    partition = Partition([("bcd", 2), ("ab", 1)], frozenset())
    assert partition.split("abcd", True) == ["a", 2]
    assert partition.split("xabbcdab", True) == ["x", 1, 2, 1]


@pytest.mark.parametrize("name", NAMES)
def test_text_that_spells_a_control_token_is_text(name: str) -> None:
    tokenizer = small(name)
    control = tokenizer.vocabulary.control - {tokenizer.unk}
    for token in control:
        text = f"a{tokenizer.token_text(token)}b {tokenizer.token_text(token)} "
        ids = tokenizer.tokenize(text, add_special=False, parse_special=False)
        assert not control.intersection(ids), text


@pytest.mark.parametrize(("name", "text"), [("spm", "x▁y"), ("bpe", "xĠy")])
def test_special_tokens_are_written_as_they_are_spelt(name: str, text: str) -> None:
    tokenizer = with_tokens(name, {text: 4})
    assert tokenizer.detokenize([tokenizer.n_vocab - 1]) == text


def test_phi3_tokens_swallow_the_space_after_them() -> None:
    tokenizer = small("spm-phi3")
    assert tokenizer.tokenize("<tool>  x") == tokenizer.tokenize("<tool>x")
    assert tokenizer.tokenize("<s>  x") != tokenizer.tokenize("<s>x")


@pytest.mark.parametrize("name", ["spm", "bpe"])
def test_end_of_turn_texts_are_control_tokens_and_end_a_generation(name: str) -> None:
    tokenizer = with_tokens(name, {"<end_of_turn>": 1, "<|other|>": 3})
    ids = tokenizer.tokenize("<end_of_turn>", add_special=False)
    assert len(ids) == 1
    assert ids[0] in tokenizer.eog
    assert tokenizer.detokenize(ids) == ""
    assert tokenizer.tokenize("<|other|>", add_special=False)[0] not in tokenizer.eog


def test_harmony_messages_end_without_ending_the_generation() -> None:
    harmony = {"<|end|>": 3, "<|return|>": 3, "<|call|>": 3}
    tokenizer = with_tokens("bpe", harmony)
    ends = {tokenizer.token_text(token) for token in tokenizer.eog}
    assert {"<|return|>", "<|call|>"} <= ends
    assert "<|end|>" not in ends
    assert tokenizer.detokenize(tokenizer.tokenize("<|channel|>x<|end|>")) == "<|channel|>x<|end|>"
    assert "<|end|>" in {t.token_text(i) for t in [with_tokens("bpe", {"<|end|>": 3})] for i in t.eog}


def test_tokens_added_around_a_text() -> None:
    bare = from_metadata(metadata("bpe", add_bos_token=False, add_eos_token=True))
    assert bare.tokenize("x")[-1] == bare.eos
    assert bare.tokenize("x")[0] != bare.bos
    wpm = small("wpm")
    assert wpm.tokenize("") == [wpm.bos, wpm.sep]
    assert wpm.tokenize("", add_special=False) == []
