"""Measure tokenizing and detokenizing speed next to llama.cpp, in CPU time, so that other load matters little.

    python bench/tokenizer_speed.py [NAME ...]

A NAME is one of compare_tokenizers.py. Default: the vocabularies in ../shared/vocabs and those of
large_vocabularies.py. Requires llama-cpp-python.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from compare_tokenizers import PUBLISHED, metadata_of, published_names
from large_vocabularies import LARGE_VOCABULARIES
from llama_vocab import LlamaVocab

from pumice.tokenizers import from_metadata

REPEATS = 5

PARAGRAPH = (
    "The quick brown fox, who couldn't care less, jumped over 13 lazy dogs (2024-05-17, 07:45).\n"
    "    for i in range(1024):  # an_identifier, CamelCase and naïve façades\n"
    "        total += weights[i] * inputs[i]\n\n"
    "Größe über alles; être ou ne pas être? Быстрая лиса прыгает. 敏捷的狐狸跳过懒狗。 素早い狐 🦊🐕\n"
)


def varied(size: int) -> str:
    """Return ``size`` characters of prose and code in several languages with few repeated words."""
    words = PARAGRAPH.split(" ")
    mixed = [word[::-1] if (i // len(words)) % 2 else word for i, word in enumerate(words * (size // 5))]
    return " ".join(f"{word}{i % 97}" if i % 3 == 0 else word for i, word in enumerate(mixed))[:size]


def seconds(function: Callable[[], Any]) -> float:
    """Return the CPU seconds of a call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def measure(metadata: dict[str, Any], peer: LlamaVocab, text: str) -> tuple[float, ...]:
    """Return seconds to build a tokenizer, to tokenize, to tokenize again with cached words, and to detokenize."""
    start = time.process_time()
    tokenizer = from_metadata(metadata)
    tokenizer.tokenize("a")
    build = time.process_time() - start
    first = seconds(lambda: tokenizer.tokenize(text))
    again = seconds(lambda: tokenizer.tokenize(text))
    ids = tokenizer.tokenize(text)
    back = seconds(lambda: tokenizer.detokenize(ids))
    return build, first, again, back, seconds(lambda: peer.tokenize(text, add_special=True, parse_special=True))


def main() -> None:
    text = varied(600_000)
    size = len(text.encode()) / 1e6
    print(f"{size:.2f} MB of text, best of {REPEATS}; building in ms, the rest in MB/s")
    print(f"{'vocabulary':20} {'build':>6} {'first':>6} {'again':>6} {'back':>6} {'llama.cpp':>10}")
    for name in sys.argv[1:] or [*published_names(), *LARGE_VOCABULARIES]:
        metadata = metadata_of(name, PUBLISHED / "ggml-vocab-llama-bpe.gguf")
        peer = LlamaVocab.from_metadata(metadata)
        build, *runs, theirs = map(min, zip(*(measure(metadata, peer, text) for _ in range(REPEATS)), strict=True))
        print(f"{name:20} {build * 1e3:6.0f} " + " ".join(f"{size / t:6.1f}" for t in runs) + f" {size / theirs:10.1f}")


if __name__ == "__main__":
    main()
