"""Structures of C that know their type in Vulkan, and keep alive what they point to."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar, dataclass_transform, get_args

Pointee: TypeAlias = "int | bytes | ctypes.Structure | ctypes.Array[Any] | ctypes._CArgObject | None"
"""Values of a pointer: an address, or an object to point to."""

Passed: TypeAlias = "bytes | ctypes.Array[Any] | ctypes._CArgObject | None"
"""Pointer arguments of a function that converts nothing."""

Pointer: TypeAlias = Annotated[Pointee, ctypes.c_void_p]
Text: TypeAlias = Annotated["bytes | None", ctypes.c_char_p]
Float: TypeAlias = Annotated[float, ctypes.c_float]
Int32: TypeAlias = Annotated[int, ctypes.c_int32]
Size: TypeAlias = Annotated[int, ctypes.c_size_t]
UInt8: TypeAlias = Annotated[int, ctypes.c_uint8]
UInt32: TypeAlias = Annotated[int, ctypes.c_uint32]
UInt64: TypeAlias = Annotated[int, ctypes.c_uint64]

ZERO: Any = None
"""The value of a field that is not given."""

S = TypeVar("S", bound="Structure")


@dataclass_transform(kw_only_default=True)
class Structure(ctypes.Structure):
    """A structure of Vulkan, zero but for the fields given by name; ``define`` makes them from its annotations."""

    TYPE: ClassVar[int | None] = None  # ``sType``
    POINTERS: ClassVar[frozenset[str]] = frozenset()

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


def define(names: Mapping[str, Any]) -> None:
    """Give a module's structures the fields that they annotate, in their order."""
    for kind in names.values():
        if isinstance(kind, type) and issubclass(kind, Structure) and kind is not Structure:
            types = {name: _c_type(hint) for name, hint in kind.__annotations__.items()}
            kind._fields_ = [*types.items()]
            kind.POINTERS = frozenset(name for name, c_type in types.items() if c_type is ctypes.c_void_p)


def _c_type(hint: Any) -> type:
    """Return the type of a field from its annotation: a structure, or a Python type with that of C or a length."""
    if isinstance(hint, type):
        return hint
    python_type, c_type = get_args(hint)
    if not isinstance(c_type, int):
        return c_type
    (item,) = get_args(python_type) or (ctypes.c_char,)
    return item * c_type


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
