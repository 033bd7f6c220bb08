"""A GGUF file's key-value metadata.

Layout from the GGUF specification (ggml, `docs/gguf.md`): key string, 32-bit value type, value. A string is a
64-bit length and bytes; an array is a 32-bit element type, a 64-bit length and the elements.
"""

import contextlib
import struct
from array import array
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pumice.errors import GGUFError
from pumice.gguf.cursor import U32, U64, Cursor
from pumice.gguf.strings import PackedStrings, StringArray
from pumice.gguf.values import DTYPES, LAYOUTS, EncodedValue, ValueType, encode

# Limits on what Python has to loop over, far above any real model (a large vocabulary has half a
# million tokens and merges), so that hostile files fail at once rather than after minutes and gigabytes.
MAX_ENTRIES = 1 << 16  # of keys, and of tensors
MAX_STRINGS = 1 << 22  # in arrays, over the whole file
MAX_ARRAYS = 1 << 12  # within arrays, over the whole file
MAX_DEPTH = 4  # arrays within arrays
MAX_KEY_BYTES = (1 << 16) - 1

_WINDOW_BYTES = 1 << 16  # in which the lengths of short strings are looked for at once
_FEW_STRINGS = 256  # that are stepped over instead
_MAX_MISSES = 32  # windows with few short strings, after which all others are stepped over

MIN_ENTRY_BYTES = 8 + 1 + 4 + 1  # length and bytes of the key, type, value


class Metadata(Mapping[str, Any]):
    """Keys and values in file order.

    Scalars are bool, int, float and str (invalid UTF-8 becomes U+FFFD). Arrays of numbers are
    read-only NumPy arrays of the file's type, views of the file if it is aligned. Arrays of strings are
    `list[str]`, decoded on first use; invalid UTF-8 becomes lone surrogates, so that
    `.encode("utf-8", "surrogateescape")` restores the bytes. Arrays of arrays are lists.
    """

    def __init__(self, values: dict[str, Any], encoded: dict[str, Callable[[], EncodedValue]] | None = None) -> None:
        self._values = values
        self._encoded = encoded or {}

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        if isinstance(value, StringArray | PackedStrings):
            value = self._values[key] = value.decode()
        return value

    def stored(self, key: str) -> Any:
        """Return the value as it is stored: strings of an array may not be decoded yet."""
        return self._values[key]

    def count(self, key: str) -> int:
        """Return the number of items of an array, without decoding its strings; 0 if there is none."""
        value = self._values.get(key, ())
        return 0 if isinstance(value, str | int | float) else len(value)

    def scalars(self) -> dict[str, str | int | float]:
        """Return the values that are not arrays."""
        return {key: value for key, value in self._values.items() if isinstance(value, str | int | float)}

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:  # the inherited one would decode the value
        return key in self._values

    def encoded(self, key: str) -> EncodedValue:
        """Return the value with its type, in the file's own bytes."""
        return self._encoded[key]()

    def is_encoded(self, key: str) -> bool:
        """Return True if ``encoded`` knows the key, as in a file."""
        return key in self._encoded

    def __repr__(self) -> str:
        return f"Metadata({len(self)} keys)"


def read_metadata(cursor: Cursor, n_entries: int) -> Metadata:
    """Read `n_entries` keys and values. Raises GGUFError if one of them is invalid."""
    reader = _ValueReader(cursor)
    values: dict[str, Any] = {}
    encoded: dict[str, Callable[[], EncodedValue]] = {}
    for i in range(n_entries):
        cursor.field = f"metadata entry {i}"
        start = cursor.offset
        key = cursor.name("key", MAX_KEY_BYTES)
        cursor.field = f"metadata key {_shortened(key)}"
        if key in values:
            raise cursor.error("appears twice", start)
        type_at = cursor.offset
        values[key] = reader.value(cursor.u32("value type"))
        encoded[key] = partial(_encoded, cursor.buffer, type_at, cursor.offset)
    return Metadata(values, encoded)


def override_metadata(metadata: Metadata, values: Mapping[str, bool | int | float | str]) -> Metadata:
    """Return metadata with other values for some keys, which keep their types; a new key has the value's type.

    Raises:
        GGUFError: A value does not fit the type of its key.
    """
    changed: dict[str, Any] = {}
    encoded: dict[str, Callable[[], EncodedValue]] = {}
    for key, value in values.items():
        type_name = metadata.encoded(key).type_name if metadata.is_encoded(key) else None
        if type_name and (type_name == "str") != isinstance(value, str):
            raise GGUFError(f"metadata key {_shortened(key)} is of type {type_name}, so it cannot be {value!r:.80}")
        try:
            item = encode(value, type_name)
        except GGUFError as error:
            raise GGUFError(f"metadata key {_shortened(key)}: {error}") from None
        changed[key] = float(value) if type_name in ("f32", "f64") else value
        encoded[key] = partial(_same, item)
    return Metadata({**metadata._values, **changed}, {**metadata._encoded, **encoded})


def _same(encoded: EncodedValue) -> EncodedValue:
    return encoded


def make_metadata(entries: Mapping[str, EncodedValue]) -> Metadata:
    """Return the metadata of a file with these entries."""
    raw = b"".join(
        U64.pack(len(key.encode())) + key.encode() + U32.pack(value.type) + value.data for key, value in entries.items()
    )
    buffer = mmap(-1, max(len(raw), 1))
    buffer.write(raw)
    return read_metadata(Cursor(Path("metadata"), buffer), len(entries))


def _encoded(buffer: mmap, type_at: int, end: int) -> EncodedValue:
    return EncodedValue(ValueType(U32.unpack_from(buffer, type_at)[0]), buffer[type_at + U32.size : end])


class _ValueReader:
    """Reads values, and limits their total cost over the whole file."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.n_strings = 0
        self.n_arrays = 0

    def value(self, type: int) -> Any:
        cursor = self.cursor
        if type == ValueType.STR:
            return cursor.string("string").decode("utf-8", "replace")
        if type == ValueType.ARR:
            return self.array(depth=1)
        if type not in LAYOUTS:
            raise cursor.error(f"unknown value type {type}", cursor.offset - 4)
        if type == ValueType.BOOL:
            return bool(self.numbers(ValueType.BOOL, 1)[0])
        return cursor.scalar(LAYOUTS[type], "value")

    def array(self, depth: int) -> Any:
        cursor = self.cursor
        start = cursor.offset
        type = cursor.u32("array element type")
        if type in DTYPES:
            return self.numbers(type, cursor.count("array length", DTYPES[type].itemsize))
        if type == ValueType.STR:
            strings = self.strings(cursor.count("array length", 8))
            return strings if depth == 1 else strings.decode()
        if type != ValueType.ARR:
            raise cursor.error(f"unknown array element type {type}", start)
        if depth == MAX_DEPTH:
            raise cursor.error(f"arrays nested deeper than {MAX_DEPTH} levels", start)
        n = cursor.count("array length", 12)
        self.n_arrays += n
        if self.n_arrays > MAX_ARRAYS:
            raise cursor.error(f"more than {MAX_ARRAYS} arrays within arrays", start)
        return [self.array(depth + 1) for _ in range(n)]

    def numbers(self, type: int, n: int) -> np.ndarray[Any, Any]:
        cursor, dtype = self.cursor, DTYPES[type]
        start = cursor.skip(n * dtype.itemsize, "array")
        if type == ValueType.BOOL and n:
            raw = np.frombuffer(cursor.buffer, np.uint8, n, start)
            if raw.max() > 1:
                bad = int(np.argmax(raw > 1))
                raise cursor.error(f"a bool is {raw[bad]}, expected 0 or 1", start + bad)
        numbers = np.frombuffer(cursor.buffer, dtype, n, start)
        if not numbers.flags.aligned:
            numbers = numbers.copy()
            numbers.flags.writeable = False
        return numbers

    def strings(self, n: int) -> StringArray:
        """Find the ends of strings, each of which follows from its own length only."""
        cursor = self.cursor
        self.n_strings += n
        if self.n_strings > MAX_STRINGS:
            raise cursor.error(f"more than {MAX_STRINGS} strings in arrays", cursor.offset - 8)
        buffer = cursor.buffer
        ends = _string_ends(buffer, cursor.offset, n)
        end = int(ends[-1]) if len(ends) else cursor.offset
        if len(buffer) < cursor.size and end <= cursor.size:
            cursor.need(end if len(ends) == n else max(end, len(buffer)) + 8)
        if len(ends) < n or end > len(buffer):
            raise self._string_error(cursor.offset, ends, n)
        strings = StringArray(buffer, cursor.offset, ends)
        cursor.offset = end
        return strings

    def _string_error(self, start: int, ends: NDArray[np.uint64], n: int) -> GGUFError:
        """Return the error for the first of ``n`` strings from ``start`` that does not end within the file."""
        cursor, size = self.cursor, self.cursor.size
        i = next((i for i, end in enumerate(ends) if end > size), len(ends))
        start = int(ends[i - 1]) if i else start
        if start > size - 8:
            return cursor.cut(f"string {i} of {n} begins after the end of the file", start)
        n_bytes = U64.unpack_from(cursor.buffer, start)[0]
        return cursor.cut(f"string {i} of {n} takes {n_bytes} bytes, past the end of the file", start)


def _string_ends(buffer: mmap, start: int, n: int) -> NDArray[np.uint64]:
    """Return the ends of up to ``n`` strings from ``start``, fewer if the buffer ends before the length of one.

    The last end may be past the buffer.
    """
    pieces: list[NDArray[np.uint64]] = []
    n_misses = 0
    while n > 0:
        looks = n > _FEW_STRINGS and n_misses < _MAX_MISSES
        if looks and len(short := _short_ends(buffer, start)[:n]):
            pieces.append(short)
            start, n = int(short[-1]), n - len(short)
            if len(short) >= _FEW_STRINGS:
                continue
        n_misses += 1
        n_steps = min(n, _FEW_STRINGS) if looks else n
        stepped = _stepped_ends(buffer, start, n_steps)
        pieces.append(stepped)
        if len(stepped) < n_steps:
            break
        start, n = int(stepped[-1]) if n_steps else start, n - n_steps
    return np.concatenate(pieces) if pieces else np.empty(0, np.uint64)


def _stepped_ends(buffer: mmap, start: int, n: int) -> NDArray[np.uint64]:
    """Return the same for any strings, by stepping from length to length."""
    ends = array("Q")
    append, unpack = ends.append, U64.unpack_from
    with contextlib.suppress(struct.error, OverflowError):  # no length follows, since the string before is too long
        for _ in range(n):
            start += 8 + unpack(buffer, start)[0]
            append(start)
    return np.frombuffer(ends, np.uint64)


def _short_ends(buffer: mmap, start: int) -> NDArray[np.uint64]:
    """Return the ends of the first strings from ``start``, as far as each has fewer than 256 bytes, none of them zero.

    The length of such a string is a byte before seven zeros, and there are no seven zeros elsewhere: so all lengths of
    a window are found at once. They are right if each is where the string before it ends.
    """
    if start > len(buffer) - 8:
        return np.empty(0, np.uint64)
    window = np.frombuffer(buffer, np.uint8, min(_WINDOW_BYTES, len(buffer) - start), start)
    zeros = window == 0
    pairs = zeros[:-1] & zeros[1:]
    fours = pairs[:-2] & pairs[2:]
    sevens = fours[:-3] & fours[3:]  # zeros from here on
    lengths_at = np.flatnonzero(sevens[1:])
    if not len(lengths_at) or lengths_at[0]:
        return np.empty(0, np.uint64)
    ends = lengths_at + 8 + window[lengths_at]
    wrong = np.flatnonzero(ends[:-1] != lengths_at[1:])
    n_right = int(wrong[0]) + 1 if len(wrong) else len(ends)
    return ends[:n_right].astype(np.uint64) + np.uint64(start)


def _shortened(key: str) -> str:
    return repr(key if len(key) <= 80 else key[:77] + "...")
