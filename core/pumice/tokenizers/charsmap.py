"""SentencePiece's normalisation of characters: a table of what is replaced by what, in the form that files keep it.

The form is that of SentencePiece's ``normalizer.cc`` (``precompiled_charsmap``): the size of a double array in bytes,
that array (a trie of the texts that are replaced: https://github.com/s-yata/darts-clone), and the replacements, each
ended by a NUL.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pumice.errors import TokenizerError
from pumice.tokenizers.vocabulary import PREFIX

# Nodes of the trie whose children are looked for at once: 255 labels for each.
_ROWS = 4096


class Charsmap:
    """Replaces at each place of a text the longest part that the table has."""

    def __init__(self, replacements: dict[str, str]) -> None:
        self._single = {ord(part): text for part, text in replacements.items() if len(part) == 1}
        self._longer = {part: text for part, text in replacements.items() if len(part) > 1}
        self._lengths = sorted({len(part) for part in self._longer}, reverse=True)
        firsts, seconds = ("".join({part[i] for part in self._longer}) for i in (0, 1))
        # Where a longer part may begin; most texts have few such places.
        self._candidate = re.compile(f"[{re.escape(firsts)}][{re.escape(seconds)}]") if self._longer else None

    @classmethod
    def parse(cls, data: Any) -> "Charsmap":
        """The table in the bytes of ``tokenizer.ggml.precompiled_charsmap``; None: an empty one.

        Raises:
            TokenizerError: The bytes are no such table.
        """
        if data is None:
            return cls({})
        content = _bytes(data)
        size = int.from_bytes(content[:4], "little")
        if len(content) <= 4 + size or size % 4 or not size:
            raise _malformed(f"{size} bytes of double array and their replacements do not fit in {len(content)} bytes")
        units = np.frombuffer(content, "<u4", size // 4, 4)
        return cls(dict(_entries(units, content[4 + size :])))

    def normalize(self, text: str) -> str:
        if self._candidate is None:
            return text.translate(self._single)
        parts: list[str] = []
        done = 0
        while match := self._candidate.search(text, done):
            start = match.start()
            for length in self._lengths:
                replacement = self._longer.get(text[start : start + length])
                if replacement is not None:
                    parts += (text[done:start].translate(self._single), replacement)
                    done = start + length
                    break
            else:
                parts.append(text[done : start + 1].translate(self._single))
                done = start + 1
        parts.append(text[done:].translate(self._single))
        return "".join(parts)


def _bytes(data: Any) -> bytes:
    """An array of 8-bit numbers, signed or not, as bytes."""
    values = np.asarray(data)
    if values.ndim != 1 or values.dtype.kind not in "iu" or np.any((values < -128) | (values > 255)):
        raise TokenizerError(f"{PREFIX}precompiled_charsmap is not an array of bytes")
    return values.astype(np.uint8).tobytes()


def _entries(units: npt.NDArray[np.uint32], strings: bytes) -> Iterator[tuple[str, str]]:
    """What the trie of a double array replaces, and by what.

    A unit has the label of the edge to its node in bits 0 to 7, whether the node is the end of a text in bit 8, and in
    bits 9 to 31 the offset of its children; the unit of a value has bit 31 set.
    """
    offsets = (units >> 10) << ((units & (1 << 9)) >> 6)
    labels = np.arange(1, 256, dtype=np.uint32)
    found = 0
    stack = [(np.array([offsets[0]], np.uint32), [b""])]
    while stack:
        parents, texts = stack.pop()
        if len(texts) > _ROWS:
            stack.append((parents[_ROWS:], texts[_ROWS:]))
            parents, texts = parents[:_ROWS], texts[:_ROWS]
        children = parents[:, None] ^ labels
        inside = np.minimum(children, len(units) - 1)
        rows, columns = np.nonzero((children == inside) & (units[inside] & (1 << 31 | 0xFF) == labels))
        nodes = children[rows, columns]
        found += len(nodes)
        if found > len(units):
            raise _malformed("its double array is not a tree")
        below = nodes ^ offsets[nodes]
        texts = [texts[row] + bytes((label + 1,)) for row, label in zip(rows.tolist(), columns.tolist(), strict=True)]
        ends = np.flatnonzero(units[nodes] & (1 << 8))
        if np.any(below[ends] >= len(units)):
            raise _malformed("a unit of its double array is outside of it")
        for i, unit in zip(ends.tolist(), units[below[ends]].tolist(), strict=True):
            yield _decoded(texts[i]), _decoded(_string(strings, unit & ((1 << 31) - 1)))
        if texts:
            stack.append((below, texts))


def _string(strings: bytes, start: int) -> bytes:
    end = strings.find(b"\0", start)
    if start >= len(strings) or end < 0:
        raise _malformed(f"it has no whole replacement at byte {start} of {len(strings)}")
    return strings[start:end]


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise _malformed(f"{text!r} is not valid UTF-8") from None


def _malformed(what: str) -> TokenizerError:
    return TokenizerError(f"{PREFIX}precompiled_charsmap: {what}")
