"""Eight published vocabularies give the ids that llama.cpp's own test files list."""

import random
from functools import cache
from pathlib import Path

import pytest

from pumice.gguf import GGUFFile
from pumice.tokenizers import Tokenizer, from_metadata
from pumice.tokenizers.bpe import BPETokenizer
from pumice.tokenizers.merging import MOST_SYMBOLS

NAMES = ("bert-bge", "deepseek-llm", "falcon", "gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2")


@cache
def load(path: Path) -> Tokenizer:
    with GGUFFile.open(path) as file:
        return from_metadata(file.metadata)


def path_of(shared: Path, name: str) -> Path:
    return shared / "vocabs" / f"ggml-vocab-{name}.gguf"


def texts(shared: Path, name: str) -> list[str]:
    data = path_of(shared, name).with_suffix(".gguf.inp").read_bytes().decode()
    return data.split("\n__ggml_vocab_test__\n")


@pytest.mark.parametrize("name", NAMES)
def test_every_line_of_the_expected_ids(shared: Path, name: str) -> None:
    tokenizer = load(path_of(shared, name))
    lines = path_of(shared, name).with_suffix(".gguf.out").read_text().split("\n")
    expected = [[int(token) for token in line.split()] for line in lines]
    found = [tokenizer.tokenize(text, add_special=False, parse_special=True) for text in texts(shared, name)]
    assert len(found) == 47
    assert found == expected


@pytest.mark.parametrize("name", ["deepseek-llm", "falcon", "gpt-2", "llama-bpe", "qwen2"])
def test_short_texts_have_the_same_tokens_before_the_merges_of_the_library_are_built(shared: Path, name: str) -> None:
    with GGUFFile.open(path_of(shared, name)) as file:
        quick, library = (from_metadata(file.metadata) for _ in range(2))
    assert isinstance(quick, BPETokenizer)
    library.prepare()
    chance = random.Random(name)
    pool = [*texts(shared, name), *(quick.token_text(chance.randrange(len(quick.vocabulary))) for _ in range(300))]
    cases = ["".join(chance.choices(pool, k=chance.randint(1, 6)))[:500] for _ in range(300)]
    cases += ["".join(chance.choices("aeintrs \n0ÄßéЖ字🙂'", k=60)) for _ in range(100)]
    short = [text for text in cases if all(len(word) <= MOST_SYMBOLS for word, _ in split(quick, text))]
    assert [quick.tokenize(text) for text in short] == [library.tokenize(text) for text in short]
    assert len(short) > 300
    assert "_bpe" not in quick.__dict__
    assert [quick.tokenize(text) for text in cases] == [library.tokenize(text) for text in cases]


def split(tokenizer: BPETokenizer, text: str) -> list[tuple[str, object]]:
    return tokenizer._splitter.pre_tokenize_str(text)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "bert-bge"])
def test_the_text_comes_back(shared: Path, name: str) -> None:
    tokenizer = load(path_of(shared, name))
    for text in texts(shared, name):
        assert tokenizer.detokenize(tokenizer.tokenize(text)) == text


def test_tokens_that_end_a_generation(shared: Path) -> None:
    for name, eog in {
        "llama-bpe": {"<|end_of_text|>", "<|eot_id|>"},
        "phi-3": {"</s>", "<|endoftext|>", "<|end|>"},
        "qwen2": {"</s>", "<|endoftext|>", "<|im_end|>"},
    }.items():
        tokenizer = load(path_of(shared, name))
        assert {tokenizer.token_text(token) for token in tokenizer.eog} == eog
