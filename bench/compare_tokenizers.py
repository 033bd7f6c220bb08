"""Compare every tokenizer and pre-tokenizer with llama.cpp over many random texts.

    python bench/compare_tokenizers.py [NAME ...] [--texts 100000] [--vocabulary FILE.gguf] [--docs]

A NAME is a pre-tokenizer, which then splits for the vocabulary of FILE (default: llama-bpe's), or a vocabulary in
../shared/vocabs, of tests/fixtures/tokenizers or of large_vocabularies.py. Default: all of them. Names with equal
splitting rules are compared together, each with llama.cpp's result for that name, in a separate process. --docs writes
the result to the table in docs/tokenizers.md. Requires llama-cpp-python.
"""

import argparse
import itertools
import json
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import regex
import tokenizers
from large_vocabularies import FIXTURES, LARGE_VOCABULARIES
from tokenizers import pre_tokenizers

from pumice.gguf import GGUFFile
from pumice.tokenizers import Tokenizer, from_metadata
from pumice.tokenizers.pre_tokenizers import ROWS, pre_tokenizer

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT.parent / "shared" / "vocabs"
SMALL = {path.stem: path for path in sorted(FIXTURES.glob("*.json")) if path.stem != "pre"}
MADE = (*SMALL, *LARGE_VOCABULARIES)

PRE_NAMES = [name for row in ROWS for name in row.names]

SHOWN = 4
"""Maximum number of differences to print per row."""

DOCS = ROOT / "docs" / "tokenizers.md"
BEGIN, END = "<!-- compared -->\n", "<!-- end of compared -->\n"
HEADER = (
    "| compared | texts | different ids | with newer characters | different words than regex |\n" + "| --- " * 5 + "|\n"
)


def main() -> None:
    arguments = parse()
    rows = list(dict.fromkeys(map(names_beside, arguments.names or ALL_NAMES)))
    if arguments.one:
        result = compare(rows[0], arguments.texts, arguments.seed, arguments.vocabulary)
        if arguments.docs:
            DOCS.write_text(with_row(DOCS.read_text(), rows[0], result))
        return
    options = ["--one", *(option for option in sys.argv[1:] if option not in arguments.names)]
    for names in rows:
        done = subprocess.run([sys.executable, __file__, names[0], *options])
        if done.returncode:
            print(f"{names[0]:24} failed: exit status {done.returncode}", flush=True)


def names_beside(name: str) -> tuple[str, ...]:
    """Return the names that are compared together with this one."""
    if name in MADE:
        return (name,)
    return next(
        (tuple(other for other in row.names if other not in MADE) for row in ROWS if name in row.names), (name,)
    )


class Compared(NamedTuple):
    """The number of texts, and those with different ids, for the worst of the names."""

    n_texts: int
    n_different: int
    n_newer: int
    """Differences in texts with characters unassigned in this Python's Unicode are counted separately."""
    n_words: int | None
    """Different texts where the package regex also splits differently than this tokenizer, if there are patterns."""


def with_row(page: str, names: Sequence[str], result: Compared) -> str:
    """Return the documentation with this result in place of the row's previous one."""
    start, stop = page.index(BEGIN) + len(BEGIN), page.index(END)
    rows = {row.split(" | ")[0]: row for row in page[start:stop].splitlines(keepends=True)[2:]}
    cell = "| " + ", ".join(f"`{name}`" for name in names)
    numbers = ("-" if number is None else f"{number:,}" for number in result)
    rows[cell] = f"{cell} | {' | '.join(numbers)} |\n"
    cells = ["| " + ", ".join(f"`{name}`" for name in row) for row in dict.fromkeys(map(names_beside, ALL_NAMES))]
    return page[:start] + HEADER + "".join(rows[cell] for cell in cells if cell in rows) + page[stop:]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vocabulary", type=Path, default=PUBLISHED / "ggml-vocab-llama-bpe.gguf")
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def published_names() -> list[str]:
    """Return the vocabularies in ../shared/vocabs."""
    return [path.stem.removeprefix("ggml-vocab-") for path in sorted(PUBLISHED.glob("*.gguf"))]


WORDPIECE = {"wpm", "wpm-cased", "bert-bge"}  # follow transformers, not llama.cpp
ALL_NAMES = [name for name in (*MADE, *published_names(), *PRE_NAMES) if name not in WORDPIECE]


def metadata_of(name: str, vocabulary: Path) -> dict[str, Any]:
    """Return the tokenizer's metadata of a vocabulary by name."""
    if name in MADE:
        return small(name) if name in SMALL else LARGE_VOCABULARIES[name]()
    if path := next(PUBLISHED.glob(f"ggml-vocab-{name}.gguf"), None):
        return tokenizer_keys(path)
    if pre_tokenizer(name).byte_level:
        return tokenizer_keys(vocabulary) | {"tokenizer.ggml.pre": name}
    return small("gemma4") | {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": name}


def small(name: str) -> dict[str, Any]:
    """Return the metadata of a vocabulary of the tests."""
    metadata: dict[str, Any] = json.loads(SMALL[name].read_text())["metadata"]
    return metadata


def tokenizer_keys(path: Path) -> dict[str, Any]:
    with GGUFFile.open(path) as file:
        return {k: v for k, v in file.metadata.items() if k.startswith("tokenizer.ggml") or k == "general.name"}


def compare(names: Sequence[str], n_texts: int, seed: int, vocabulary: Path) -> Compared:
    """Tokenize ``n_texts`` with both and print how many differ."""
    from llama_vocab import LlamaVocab
    from tokenizer_texts import Texts

    metadata, is_pre = metadata_of(names[0], vocabulary), names[0] in PRE_NAMES and names[0] not in MADE
    tokenizer = from_metadata(metadata)
    peers = {
        name: LlamaVocab.from_metadata(metadata | ({"tokenizer.ggml.pre": name} if is_pre else {})) for name in names
    }
    different: dict[str, list[tuple[str, list[int], list[int]]]] = {name: [] for name in names}
    newer = dict.fromkeys(names, 0)

    def spelt(ids: Sequence[int]) -> int:
        """Return the number of control tokens, which llama.cpp may find even in text that is not parsed for them."""
        return sum(token in tokenizer.vocabulary.control for token in ids)

    for i, text in enumerate(itertools.islice(Texts(seed, *spellings(tokenizer)), n_texts)):
        add_special, parse_special = bool(i & 1), not i & 2
        token_ids = tokenizer.tokenize(text, add_special, parse_special)
        for name, peer in peers.items():
            expected = peer.tokenize(text, add_special, parse_special)
            if token_ids == expected or (not parse_special and spelt(expected) > spelt(tokenizer.tokenize(""))):
                continue
            if any(unicodedata.category(char) == "Cn" for char in text):
                newer[name] += 1
            else:
                different[name].append((text, token_ids, expected))
    worst = max(names, key=lambda name: len(different[name]))
    words = None
    if is_pre:
        same_words = word_check(names[0])
        words = sum(not same_words(text) for text, _, _ in different[worst])
    result = Compared(n_texts, len(different[worst]), max(newer.values()), words)
    print(f"{', '.join(names)}: {result}", flush=True)
    for text, token_ids, expected in sorted(different[worst], key=lambda case: len(case[0]))[:SHOWN]:
        print(f"    {text!a}\n        {shown(tokenizer, token_ids)}\n        {shown(tokenizer, expected)} (llama.cpp)")
    return result


def word_check(name: str) -> Callable[[str], bool]:
    """Return True if the package regex splits a text into the same words as this pre-tokenizer's patterns."""
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
    """Yield the matches in ``text`` and the text between them."""
    cuts = sorted({0, len(text), *(cut for match in pattern.finditer(text) for cut in match.span())})
    return [text[start:end] for start, end in itertools.pairwise(cuts)]


def shown(tokenizer: Tokenizer, ids: list[int]) -> str:
    return " ".join(f"{i}:{tokenizer.token_text(i)!a}" if 0 <= i < tokenizer.n_vocab else str(i) for i in ids[:12])


def spellings(tokenizer: Tokenizer) -> tuple[list[str], list[str]]:
    """Return the spellings of special tokens, and a sample of other tokens' texts."""
    special = sorted(tokenizer.vocabulary.special)
    sample = [i for i in range(0, tokenizer.n_vocab, max(1, tokenizer.n_vocab // 20_000)) if i not in special]
    pieces = [tokenizer.detokenize([i]) for i in sample]
    return [tokenizer.token_text(i) for i in special], [piece for piece in pieces if piece and "\ufffd" not in piece]


if __name__ == "__main__":
    main()
