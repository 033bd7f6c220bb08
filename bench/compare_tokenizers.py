"""Whether every tokenizer and pre-tokenizer gives llama.cpp's ids, over many random texts.

    python bench/compare_tokenizers.py [NAME ...] [--texts 100000] [--vocabulary FILE.gguf]

A NAME is that of a pre-tokenizer, which then cuts for the vocabulary of FILE (default: llama-bpe's), of a vocabulary in
../shared/vocabs, or of one that tests/make_fixtures/vocabularies.py makes. Default: all of them. Each is compared in a
process of its own. Needs llama-cpp-python.
"""

import argparse
import itertools
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import regex
import tokenizers
from tokenizers import pre_tokenizers

from pumice.gguf import GGUFFile
from pumice.tokenizers import Tokenizer, from_metadata
from pumice.tokenizers.pre_tokenizers import ROWS, pre_tokenizer

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT.parent / "shared" / "vocabs"
sys.path.insert(0, str(ROOT / "tests" / "make_fixtures"))
from vocabularies import LARGE_VOCABULARIES, VOCABULARIES  # noqa: E402

MADE = VOCABULARIES | LARGE_VOCABULARIES

PRE_NAMES = [name for row in ROWS for name in row.names]

SHOWN = 4
"""Differences that are printed for each name."""


def main() -> None:
    arguments = parse()
    if arguments.one:
        compare(arguments.one, arguments.texts, arguments.seed, arguments.vocabulary)
        return
    names = arguments.names or [*MADE, *published_names(), *PRE_NAMES]
    options = [
        "--texts",
        str(arguments.texts),
        "--seed",
        str(arguments.seed),
        "--vocabulary",
        str(arguments.vocabulary),
    ]
    for name in names:
        done = subprocess.run([sys.executable, __file__, "--one", name, *options])
        if done.returncode:
            print(f"{name:24} failed: exit status {done.returncode}", flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vocabulary", type=Path, default=PUBLISHED / "ggml-vocab-llama-bpe.gguf")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def published_names() -> list[str]:
    """The vocabularies in ../shared/vocabs."""
    return [path.stem.removeprefix("ggml-vocab-") for path in sorted(PUBLISHED.glob("*.gguf"))]


def metadata_of(name: str, vocabulary: Path) -> dict[str, Any]:
    """The metadata of a vocabulary by name, its tokenizer's keys alone."""
    if name in MADE:
        return MADE[name]()
    if path := next(PUBLISHED.glob(f"ggml-vocab-{name}.gguf"), None):
        return tokenizer_keys(path)
    if pre_tokenizer(name).byte_level:
        return tokenizer_keys(vocabulary) | {"tokenizer.ggml.pre": name}
    return VOCABULARIES["gemma4"]() | {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": name}


def tokenizer_keys(path: Path) -> dict[str, Any]:
    with GGUFFile.open(path) as file:
        return {k: v for k, v in file.metadata.items() if k.startswith("tokenizer.ggml") or k == "general.name"}


def compare(name: str, n_texts: int, seed: int, vocabulary: Path) -> None:
    """Tokenize ``n_texts`` with both and print how many differ.

    Texts with characters that this Python's Unicode has not assigned count apart: its versions differ. Where a
    pre-tokenizer differs, the package regex runs its patterns too.
    """
    from llama_vocab import LlamaVocab
    from tokenizer_texts import Texts

    metadata = metadata_of(name, vocabulary)
    tokenizer, peer = from_metadata(metadata), LlamaVocab.from_metadata(metadata)
    same_words = word_check(name)
    different: list[tuple[str, list[int], list[int]]] = []
    new = words = 0
    for i, text in enumerate(itertools.islice(Texts(seed, *spellings(tokenizer)), n_texts)):
        add_special, parse_special = bool(i & 1), not i & 2
        found = tokenizer.tokenize(text, add_special, parse_special)
        expected = peer.tokenize(text, add_special, parse_special)
        if found == expected:
            continue
        if any(unicodedata.category(char) == "Cn" for char in text):
            new += 1
        else:
            different.append((text, found, expected))
            words += not same_words(text)
    note = f"; the patterns in another engine: {words} differ" if different and name in PRE_NAMES else ""
    note += f"; with characters newer than Unicode {unicodedata.unidata_version}: {new} differ" if new else ""
    print(f"{name:24} {n_texts} texts, {len(different)} differ{note}", flush=True)
    for text, found, expected in sorted(different, key=lambda case: len(case[0]))[:SHOWN]:
        print(f"    {text!a}\n        {shown(tokenizer, found)}\n        {shown(tokenizer, expected)} (llama.cpp)")


def word_check(name: str) -> Callable[[str], bool]:
    """Whether the package regex cuts a text into the words that the patterns of a pre-tokenizer make here."""
    if name not in PRE_NAMES:
        return lambda text: True
    row = pre_tokenizer(name)
    splits: list[Any] = [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in row.patterns]
    ours, patterns = pre_tokenizers.Sequence(splits), [regex.compile(pattern, regex.V1) for pattern in row.patterns]

    def same(text: str) -> bool:
        words = [text]
        for pattern in patterns:
            words = [piece for word in words for piece in isolated(pattern, word)]
        return [word for word, _ in ours.pre_tokenize_str(text)] == words

    return same


def isolated(pattern: "regex.Pattern[str]", text: str) -> list[str]:
    """The matches in ``text`` and what is between them."""
    cuts = sorted({0, len(text), *(cut for match in pattern.finditer(text) for cut in match.span())})
    return [text[start:end] for start, end in itertools.pairwise(cuts)]


def shown(tokenizer: Tokenizer, ids: list[int]) -> str:
    return " ".join(f"{i}:{tokenizer.token_text(i)!a}" if 0 <= i < tokenizer.n_vocab else str(i) for i in ids[:12])


def spellings(tokenizer: Tokenizer) -> tuple[list[str], list[str]]:
    """The special tokens' spellings, and a sample of what the others stand for."""
    special = sorted(tokenizer.vocabulary.special)
    sample = [i for i in range(0, tokenizer.n_vocab, max(1, tokenizer.n_vocab // 20_000)) if i not in special]
    pieces = [tokenizer.detokenize([i]) for i in sample]
    return [tokenizer.token_text(i) for i in special], [piece for piece in pieces if piece and "\ufffd" not in piece]


if __name__ == "__main__":
    main()
