"""Split text at special tokens before the rest is tokenized."""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pumice.tokenizers.vocabulary import Vocabulary

# The characters that the C locale's isspace() accepts.
_SPACE = " \t\n\v\f\r"
_SPACES = re.compile(f"[{_SPACE}]*")

# Length of the prefixes of special tokens that are searched for first.
_HEAD = 4


@dataclass(frozen=True)
class Partition:
    """Splits text at the spellings of special tokens, longer ones first."""

    spellings: Sequence[tuple[str, int]]
    """Text and id of the special tokens, longest first."""
    ordinary: Set[int]
    """User-defined tokens, which are recognized even if special tokens are not parsed."""
    lstrip: Set[int] = field(default_factory=frozenset)
    """Tokens that absorb preceding white space."""
    rstrip: Set[int] = field(default_factory=frozenset)
    """Tokens that absorb following white space."""

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], vocabulary: Vocabulary) -> "Partition":
        """Return the partition of a vocabulary. Tokens that strip are known by model, since files do not list them."""
        special = sorted(vocabulary.special)
        spellings = [(vocabulary.tokens[token], token) for token in special]
        spellings.sort(key=lambda pair: -len(pair[0].encode()))
        lstrip, rstrip = _stripping(metadata, vocabulary)
        return cls(spellings, vocabulary.user_defined - vocabulary.hidden, lstrip, rstrip)

    @cached_property
    def _heads(self) -> Set[str]:
        """Prefixes of the special tokens; most texts need to be searched for these few only."""
        return {spelling[:_HEAD] for spelling, _ in self.spellings}

    def split(self, text: str, parse_special: bool) -> list[str | int]:
        """Return ``text`` as a list of non-empty texts and special tokens.

        With ``parse_special`` False, the spellings of control and unknown tokens are text.
        """
        parts: list[str | int] = [text] if text else []
        present = {head for head in self._heads if head in text}
        for spelling, token in self.spellings if present else ():
            if spelling[:_HEAD] not in present:
                continue
            if (parse_special or token in self.ordinary) and spelling in text:
                parts = [
                    piece
                    for part in parts
                    for piece in (self._cut(part, spelling, token) if isinstance(part, str) else (part,))
                ]
        return parts

    def _cut(self, text: str, spelling: str, token: int) -> list[str | int]:
        """Split ``text`` at the spelling of ``token``; absorbed white space cannot belong to another token."""
        parts: list[str | int] = []
        position = 0
        while (start := text.find(spelling, position)) >= 0:
            before = text[position:start]
            parts += (before.rstrip(_SPACE) if token in self.lstrip else before, token)
            position = start + len(spelling)
            if token in self.rstrip:
                position = _SPACES.match(text, position).end()  # type: ignore[union-attr]  # the pattern matches the empty text, too
        parts.append(text[position:])
        return [part for part in parts if part != ""]


def _stripping(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> tuple[set[int], set[int]]:
    """Return the tokens that absorb white space before and after them, by llama.cpp's list."""
    pre = str(metadata.get("tokenizer.ggml.pre", ""))
    name = str(metadata.get("general.name", "")).lower()
    architecture = str(metadata.get("general.architecture", ""))

    def ids(*texts: str) -> set[int]:
        return {vocabulary.ids[text] for text in texts if text in vocabulary.ids}

    if any(jina in pre for jina in ("jina-v2-de", "jina-v2-es", "jina-v2-code")) or any(
        bert in architecture for bert in ("nomic-bert-moe", "jina-bert-v3")
    ):
        return ids("<mask>"), set()
    if "phi-3" in name or "phi3" in name:
        return set(), vocabulary.special - ids("<unk>", "<s>", "<|endoftext|>")
    if "modern-bert" in name:
        return ids("[MASK]"), set()
    return set(), set()
