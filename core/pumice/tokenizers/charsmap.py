"""SentencePiece's normalization of characters by a table of replacements, in its binary form.

The form is that of SentencePiece's ``normalizer.cc`` (``precompiled_charsmap``): the size of a double array in bytes,
the array (a trie of the replaced strings: https://github.com/s-yata/darts-clone), and the NUL-terminated replacements.
"""

import re
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pumice.errors import TokenizerError
from pumice.tokenizers.vocabulary import PREFIX

_Nodes = npt.NDArray[np.uint32]

# Maximum characters of a replaced string.
_LONGEST = 64

# Limit on the prefixes of replaced strings, in characters; real tables have fewer.
_MAX_PREFIXES = 1 << 20


class Charsmap:
    """Replaces the longest string in the table at each position of a text."""

    def __init__(self, data: Any) -> None:
        """``data``: the array ``tokenizer.ggml.precompiled_charsmap``; None replaces nothing.

        Raises:
            TokenizerError: The table is invalid.
        """
        content = b"" if data is None else _bytes(data)
        size = int.from_bytes(content[:4], "little")
        if content and (len(content) <= 4 + size or size % 4 or not size):
            raise _malformed(f"{size} bytes of double array and the replacements do not fit in {len(content)} bytes")
        units = np.frombuffer(content, "<u4", size // 4, 4) if content else np.zeros(1)
        self._trie = DoubleArray(units.astype(np.uint32))
        self._strings = content[4 + size :]
        self._characters = _Characters(self)

    @cached_property
    def _pairs(self) -> tuple[set[str], re.Pattern[str] | None]:
        """First characters of longer replaced strings, and a pattern of their second characters, which are rare."""
        firsts, nodes = self._trie.next_characters(self._trie.root)
        seconds, _ = self._trie.next_characters(nodes)
        return firsts, re.compile(f"[{re.escape(''.join(sorted(seconds)))}]") if seconds else None

    def normalize(self, text: str) -> str:
        firsts, seconds = self._pairs
        parts: list[str] = []
        done, second = 0, 1
        while seconds and (match := seconds.search(text, second)):
            second = match.end()
            start = match.start() - 1
            replaced = self.replacement(text[start : start + _LONGEST]) if text[start] in firsts else None
            if replaced and replaced[0] > 1:
                parts += (text[done:start].translate(self._characters), replaced[1])
                done = start + replaced[0]
                second = done + 1
        parts.append(text[done:].translate(self._characters))
        return "".join(parts)

    def replacement(self, text: str) -> tuple[int, str] | None:
        """Return how many characters at the start of ``text`` are replaced, and the replacement; None if none are.

        Raises:
            TokenizerError: An offset in the table is out of range.
        """
        data = text.encode()
        for length, start in reversed(self._trie.prefixes(data)):
            if length < len(data) and data[length] & 0xC0 == 0x80:
                continue  # it ends within a character
            end = self._strings.find(b"\0", start)
            if start >= len(self._strings) or end < 0:
                raise _malformed(f"no complete replacement at byte {start} of {len(self._strings)}")
            return len(data[:length].decode()), self._strings[start:end].decode(errors="replace")
        return None


class _Characters(dict[int, str]):
    """Replacements of single characters for ``str.translate``, computed on first use."""

    def __init__(self, table: Charsmap) -> None:
        self._table = table

    def __missing__(self, codepoint: int) -> str:
        char = chr(codepoint)
        match = self._table.replacement(char)
        self[codepoint] = replacement = match[1] if match else char
        return replacement


class DoubleArray:
    """A trie of byte strings with values, in an array of 32-bit units.

    Bits 0 to 7 of a unit hold the label of the edge to its node, bit 8 is set if a string ends there, and bits 9 to 31
    hold the offset to its children and its value, whose unit has bit 31 set. A node is represented by the index that
    yields the unit of a child by exclusive or with the label of its edge. Equal branches may be shared.
    """

    def __init__(self, units: _Nodes) -> None:
        self._units = units
        self._steps: _Nodes = ((units >> 10) << ((units & (1 << 9)) >> 6)).astype(np.uint32)
        self.root = self._steps[:1]
        # Lists are faster than arrays for single elements.
        self._unit_list, self._step_list = units.tolist(), self._steps.tolist()

    def prefixes(self, data: bytes) -> list[tuple[int, int]]:
        """Return lengths and values of the strings that are prefixes of ``data``, shortest first."""
        units, steps = self._unit_list, self._step_list
        matches = []
        node = steps[0]
        for length, byte in enumerate(data, 1):
            node ^= byte
            if not byte or node >= len(units) or units[node] & (1 << 31 | 0xFF) != byte:
                break
            ends, node = units[node] & (1 << 8), node ^ steps[node]
            if ends:
                if node >= len(units):
                    raise _malformed(f"the unit of a value, {node}, exceeds the {len(units)} units")
                matches.append((length, units[node] & ((1 << 31) - 1)))
        return matches

    def next_characters(self, nodes: _Nodes) -> tuple[set[str], _Nodes]:
        """Return the characters that can follow ``nodes``, and the nodes after them."""
        characters: set[str] = set()
        after: set[int] = set()
        begun = {(b"", node) for node in nodes.tolist()}
        while begun:
            if len(begun) + len(after) > _MAX_PREFIXES:
                raise _malformed("its double array has too many branches")
            texts, starts = zip(*begun, strict=True)
            begun = set()
            for row, byte, node in self._children(np.array(starts, np.uint32)):
                text = texts[row] + bytes((byte,))
                if len(text) < _utf8_length(text[0]):
                    begun.add((text, node))
                elif char := text.decode(errors="ignore"):
                    characters.add(char)
                    after.add(node)
        return characters, np.array(sorted(after), np.uint32)

    def _children(self, nodes: _Nodes) -> list[tuple[int, int, int]]:
        """Return the index in ``nodes``, the label and the target of every edge from ``nodes``."""
        edges: list[tuple[int, int, int]] = []
        labels = np.arange(1, 256, dtype=np.uint32)
        for first in range(0, len(nodes), 4096):
            units = nodes[first : first + 4096, None] ^ labels
            inside = np.minimum(units, len(self._units) - 1)
            rows, columns = np.nonzero((units == inside) & (self._units[inside] & (1 << 31 | 0xFF) == labels))
            children = units[rows, columns]
            reached = (children ^ self._steps[children]).tolist()
            edges += zip((rows + first).tolist(), (columns + 1).tolist(), reached, strict=True)
        return edges


def _utf8_length(lead: int) -> int:
    """Return the number of bytes of a character by its first byte."""
    return 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


def _bytes(data: Any) -> bytes:
    """Return an array of signed or unsigned 8-bit integers as bytes."""
    try:
        values = np.asarray(data)
    except ValueError:  # lists of different lengths
        values = np.empty((0, 0))
    if values.ndim != 1 or values.dtype.kind not in "iu" or np.any((values < -128) | (values > 255)):
        raise TokenizerError(f"{PREFIX}precompiled_charsmap is not an array of bytes")
    return values.astype(np.uint8).tobytes()


def _malformed(what: str) -> TokenizerError:
    return TokenizerError(f"{PREFIX}precompiled_charsmap: {what}")
