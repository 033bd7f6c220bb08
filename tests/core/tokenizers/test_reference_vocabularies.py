"""Eight published vocabularies give the ids that llama.cpp's own test files list."""

from functools import cache
from pathlib import Path

import pytest

from pumice.gguf import GGUFFile
from pumice.tokenizers import Tokenizer, from_metadata

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


@pytest.mark.parametrize("name", [name for name in NAMES if name != "bert-bge"])
def test_the_text_comes_back(shared: Path, name: str) -> None:
    tokenizer = load(path_of(shared, name))
    for text in texts(shared, name):
        assert tokenizer.detokenize(tokenizer.tokenize(text)) == text


def test_wordpiece_gives_back_words_in_lower_case(shared: Path) -> None:
    tokenizer = load(path_of(shared, "bert-bge"))
    assert tokenizer.detokenize(tokenizer.tokenize("Hello World,  how are you?")) == "hello world, how are you?"


def test_tokens_that_end_a_generation(shared: Path) -> None:
    for name, eog in {
        "llama-bpe": {"<|end_of_text|>", "<|eot_id|>"},
        "phi-3": {"</s>", "<|endoftext|>", "<|end|>"},
        "qwen2": {"</s>", "<|endoftext|>", "<|im_end|>"},
    }.items():
        tokenizer = load(path_of(shared, name))
        assert {tokenizer.token_text(token) for token in tokenizer.eog} == eog


def test_chat_templates(shared: Path) -> None:
    template = load(path_of(shared, "qwen2")).chat_template
    assert template is not None
    assert "<|im_start|>" in template
    assert load(path_of(shared, "gpt-2")).chat_template is None
