"""WordPiece gives the ids of transformers' tokenizers, where llama.cpp's differ too."""

import random
import unicodedata

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from tokenizer_fixtures import fixture, metadata, small


def reference(name: str) -> Tokenizer:
    """The vocabulary in the package tokenizers."""
    keys = metadata(name)
    tokens = keys["tokenizer.ggml.tokens"]
    spelled = (token[1:] if token[0] == "▁" else token if token[0] == "[" else f"##{token}" for token in tokens)
    tokenizer = Tokenizer(models.WordPiece({token: i for i, token in enumerate(spelled)}, unk_token="[UNK]"))
    lowercase = keys.get("tokenizer.ggml.normalizer.lowercase", True)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def stable_characters() -> list[str]:
    """Characters whose category is the same in all versions of Unicode since 3.2."""
    old = unicodedata.ucd_3_2_0.category
    characters = map(chr, [*range(0xD800), *range(0xE000, 0x110000)])
    return [char for char in characters if old(char) == unicodedata.category(char) != "Cn"]


@pytest.mark.parametrize("name", ["wpm", "wpm-cased"])
def test_ids_are_those_of_transformers(name: str) -> None:
    tokenizer, expected = small(name), reference(name)
    chance, characters = random.Random(name), stable_characters()
    pieces = [text.lstrip("▁") for text in fixture(name)["metadata"]["tokenizer.ggml.tokens"]]
    texts = ["".join(f"{chance.choice(pieces)}{char}" for char in characters[i::997]) for i in range(997)]
    texts += ["a" * 100, "a" * 101, "한국어", "हिन्दी", "a\x0bb\x85c\x1cd"]
    for text in texts:
        assert tokenizer.tokenize(text, add_special=False, parse_special=False) == expected.encode(text).ids, text
