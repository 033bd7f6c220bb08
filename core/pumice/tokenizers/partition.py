"""Cutting special tokens out of text before the rest is tokenized."""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pumice.tokenizers.vocabulary import Vocabulary

# What the C locale's isspace() accepts.
_SPACE = " \t\n\v\f\r"
_SPACES = re.compile(f"[{_SPACE}]*")

# Characters of a special token that are searched for first.
_HEAD = 4


@dataclass(frozen=True)
class Partition:
    """Splits text at the special tokens it spells. Longer tokens are found before shorter ones."""

    spellings: Sequence[tuple[str, int]]
    """Text and id of the special tokens, longest first."""
    ordinary: Set[int]
    """Those that are found even in text that is not to be parsed for special tokens: the user-defined ones."""
    lstrip: Set[int] = field(default_factory=frozenset)
    """Tokens that swallow the white space before them."""
    rstrip: Set[int] = field(default_factory=frozenset)
    """Tokens that swallow the white space after them."""

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], vocabulary: Vocabulary) -> "Partition":
        """The partition for a vocabulary. A file does not say which tokens strip: models are known by name."""
        special = sorted(vocabulary.special)
        spellings = [(vocabulary.tokens[token], token) for token in special]
        spellings.sort(key=lambda pair: -len(pair[0].encode()))
        lstrip, rstrip = _stripping(metadata, vocabulary)
        return cls(spellings, vocabulary.user_defined - vocabulary.hidden, lstrip, rstrip)

    @cached_property
    def _heads(self) -> Set[str]:
        """What the special tokens begin with: few are all that most texts need to be searched for."""
        return {spelling[:_HEAD] for spelling, _ in self.spellings}

    def split(self, text: str, parse_special: bool) -> list[str | int]:
        """``text`` as a list of texts (never empty ones) and special tokens.

        With ``parse_special`` False, control and unknown tokens are taken as the text they look like.
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
        """``text`` around the places where it spells ``token``; white space that a token swallows spells no other."""
        parts: list[str | int] = []
        at = 0
        while (found := text.find(spelling, at)) >= 0:
            before = text[at:found]
            parts += (before.rstrip(_SPACE) if token in self.lstrip else before, token)
            at = found + len(spelling)
            if token in self.rstrip:
                at = _SPACES.match(text, at).end()  # type: ignore[union-attr]  # it matches no space too
        parts.append(text[at:])
        return [part for part in parts if part != ""]


def _stripping(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> tuple[set[int], set[int]]:
    """The tokens that swallow white space before and after them, as llama.cpp knows them."""
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
