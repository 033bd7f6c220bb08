"""Structures of C that know their type in Vulkan, and keep alive what they point to."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias, TypeVar, dataclass_transform

Pointee: TypeAlias = "int | bytes | ctypes.Structure | ctypes.Array[Any] | ctypes._CArgObject | None"
"""Values of a pointer: an address, or an object to point to."""

Passed: TypeAlias = "bytes | ctypes.Array[Any] | ctypes._CArgObject | None"
"""Pointer arguments of a function that converts nothing."""

S = TypeVar("S", bound="Structure")


@dataclass_transform(kw_only_default=True)
class Structure(ctypes.Structure):
    """A structure of Vulkan, zero but for the fields given by name."""

    TYPE: ClassVar[int | None] = None  # ``sType``
    POINTERS: ClassVar[frozenset[str]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.POINTERS = frozenset(name for name, kind, *_ in cls._fields_ if kind is ctypes.c_void_p)

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        if self.TYPE is not None:
            self.sType = self.TYPE
        for name, value in fields.items():
            if name in self.POINTERS:
                self.point(name, value)
            else:
                getattr(type(self), name)  # ctypes would take a wrong name without a word
                setattr(self, name, value)
                if isinstance(value, Structure):  # copied, without what it keeps alive
                    self._keep(name, value)

    def point(self, name: str, value: Pointee) -> None:
        """Let a field point to a value, which lives as long as the structure."""
        setattr(self, name, address(value))
        self._keep(name, value)

    def chain(self, kind: type[S]) -> S:
        """Return a new structure, put at the second place of the chain that this one begins."""
        new = kind()
        new.point("pNext", self.pNext)
        self.point("pNext", new)
        self._keep(f"pNext {kind.__name__}", new)
        return new

    def _keep(self, name: str, value: object) -> None:
        self.__dict__[f"kept {name}"] = value


def address(value: Pointee) -> int | None:
    """Return the address of a value."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, bytes):
        return ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p).value
    assert isinstance(value, (ctypes.Structure, ctypes.Array))
    return ctypes.addressof(value)


def array(kind: type[S], items: Sequence[S]) -> ctypes.Array[S]:
    """Return copies of structures in a row, which live as long as what they point to."""
    row = (kind * len(items))(*items)
    row.__dict__["kept"] = items
    return row
