"""SentencePiece merging: the order of merges, long texts, unknown characters."""

import tracemalloc
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pumice.tokenizers import from_metadata
from tokenizer_fixtures import metadata


def merged_by_definition(text: str, scores: dict[str, float]) -> list[str]:
    """Always the best pair of neighbours, and among equals the leftmost."""
    symbols = list(text)
    while True:
        pairs = [(scores[a + b], -i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in scores]
        if not pairs:
            return symbols
        left = -max(pairs)[1]
        symbols[left : left + 2] = [symbols[left] + symbols[left + 1]]


@st.composite
def vocabularies(draw: st.DrawFn) -> dict[str, float]:
    tokens = draw(st.sets(st.text("ab▁", min_size=2, max_size=5), max_size=15))
    return {token: draw(st.integers(-3, 0)) for token in sorted(tokens)} | dict.fromkeys("abc▁", -9)


@given(vocabularies(), st.lists(st.text("aabbc ", max_size=40), min_size=1, max_size=3))
def test_merges_as_defined(scores: dict[str, float], texts: list[str]) -> None:
    tokens = ["<unk>", "<s>", "</s>", *scores]
    tokenizer = from_metadata(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": [0.0, 0.0, 0.0, *map(float, scores.values())],
            "tokenizer.ggml.token_type": [2, 3, 3, *[1] * len(scores)],
            "tokenizer.ggml.add_space_prefix": False,
        }
    )
    for text in texts:
        found = [tokenizer.token_text(token) for token in tokenizer.tokenize(text, add_special=False)]
        assert found == merged_by_definition(text.replace(" ", "▁"), scores)


def test_a_character_without_a_token_or_bytes_is_unknown() -> None:
    base = metadata("spm-no-prefix")
    kept = [i for i, kind in enumerate(base["tokenizer.ggml.token_type"]) if kind != 6]
    columns = {key: [base[f"tokenizer.ggml.{key}"][i] for i in kept] for key in ("tokens", "token_type", "scores")}
    tokenizer = from_metadata(metadata("spm-no-prefix", **columns))
    assert tokenizer.tokenize("\U0001f999\U0001f999", add_special=False) == [0, 0]


def test_memory_of_a_long_run() -> None:
    """A byte of text takes less than that while it is merged, whatever merges."""
    tokens = ["a", "aa", "aaaa"]
    more = {"tokens": tokens, "scores": [-9.0, -1.0, -2.0], "token_type": [1, 1, 1]}
    more |= {"bos_token_id": 0, "eos_token_id": 0}
    tokenizer = from_metadata(metadata("spm", unknown_token_id=0, **more))
    text = "a" * 50_000
    tokenizer.tokenize(text[:100])
    tracemalloc.start()
    try:
        tokenizer.tokenize(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * len(text), peak / len(text)
