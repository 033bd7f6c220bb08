"""Read the JSON body of a request into the class that its endpoint declares, within bounds."""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any, ClassVar, Self, TypeVar

import msgspec
import orjson
from msgspec.inspect import FloatType, IntType, ListType, Metadata, StructType, Type, UnionType
from starlette.exceptions import HTTPException
from starlette.requests import Request

from pumice_server import limits
from pumice_server.errors import bad_request, too_large
from pumice_server.http.schemas import explain, refusals, schema_of
from pumice_server.pools import ARRIVING
from pumice_server.work import aside

T = TypeVar("T")

_MAX_EXACT = 2.0**53  # larger floats do not stand for one integer alone
_INTEGER = "integer"

Shape = Mapping[str, Any] | str | None
"""The places of integers in a value: under keys, the value itself, or none."""


class Body(msgspec.Struct, kw_only=True, dict=True):
    """The fields of a request. A field that is null counts as absent, 4.0 as 4, and unknown fields are ignored."""

    may_be_empty: ClassVar[bool] = False
    """True if a request without a body counts as one without fields."""

    def __post_init__(self) -> None:
        self.refuse(refusals(type(self)))

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Raise HTTPException if one of these fields has a value, with the reason."""
        for name, reason in reasons.items():
            if getattr(self, name):
                raise bad_request(f"{name} is not supported: {reason}")

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Return a body with these fields. Raises HTTPException if one is wrong."""
        return converted(fields, cls)

    @property
    def size(self) -> int:
        """Bytes of the request's body."""
        size: int = self.__dict__.get("size", 0)
        return size

    async def aside(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return the result of work in proportion to the body's size, done off the event loop if the body is large."""
        return await aside(function, *arguments, size=self.size)


def set_size(body: Body, size: int) -> None:
    """Set the bytes of the request that a body is, or is a part of."""
    body.__dict__["size"] = size


@asynccontextmanager
async def arriving(request: Request) -> AsyncIterator[list[bytes]]:
    """Provide the body of a request in parts, which count among those that arrive at once.

    Raises:
        HTTPException: The body is too slow or too large.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise HTTPException(415, f"the body is compressed ({encoding:.20}); send it without Content-Encoding")
    parts: list[bytes] = []
    place = ARRIVING.take(0)
    most = request.app.state.settings.max_body
    try:
        try:
            async with asyncio.timeout(limits.BODY_SECONDS):
                async for part in request.stream():
                    if place.n + len(part) > limits.SMALL_BODY:  # small ones always have room
                        place.grow(len(part))
                    else:
                        place.count(len(part))
                    if place.n > most:
                        raise too_large(most)
                    parts.append(part)
        except TimeoutError:
            raise HTTPException(408, f"the body did not arrive within {limits.BODY_SECONDS:g} seconds") from None
        yield parts
    finally:
        place.release()


async def read_body(request: Request, kind: type[T]) -> T:
    """Return the body of a request.

    Raises:
        HTTPException: The body is too slow, too large, not JSON, or not of this kind.
    """
    async with arriving(request) as parts:
        size = sum(map(len, parts))
        body = await aside(parse, parts, kind, size=size)
    if isinstance(body, Body):
        set_size(body, size)
    return body


def prepare(kind: Any) -> None:
    """Read the annotations of a kind of body, which its first request would wait for."""
    _shape(kind)
    with suppress(msgspec.ValidationError):
        msgspec.convert({}, kind)
    if isinstance(kind, type) and issubclass(kind, Body):
        refusals(kind)


_GZIP = b"\x1f\x8b"  # the first bytes of a compressed file


def parse(parts: Sequence[bytes], kind: type[T]) -> T:
    """Return JSON text as a value of this kind. Raises HTTPException."""
    data = b"".join(parts).removeprefix(BOM_UTF8)
    if not data and getattr(kind, "may_be_empty", False):
        data = b"{}"
    if len(data) > limits.MAX_VALUES and sum(map(data.count, (b",", b"[", b"{"))) > limits.MAX_VALUES:
        raise bad_request(f"the body has more than {limits.MAX_VALUES} commas and opening brackets")
    n_brackets = data.count(b"[") + data.count(b"{")
    if n_brackets > limits.MAX_BRACKETS:
        raise bad_request(f"the body has more than {limits.MAX_BRACKETS} opening brackets")
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if data.startswith(_GZIP):
            raise bad_request("the body is compressed (gzip); send JSON as it is") from None
        raise bad_request(f"the body is not valid JSON: {error}") from None
    if n_brackets > limits.MAX_DEPTH and isinstance(value, (dict, list)):
        _check_depth(value)
    return converted(value, kind)


def converted(value: Any, kind: type[T]) -> T:
    """Return parsed JSON as a value of this kind. Raises HTTPException, which names the field, its value and bound."""
    declared: Any = kind
    value = _settled(value, _shape(declared))
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise bad_request(explain(value, schema_of(declared)) or f"the body is wrong: {error}") from None


def _settled(value: Any, shape: Shape) -> Any:
    """Return a value without null fields, and with integers where a client wrote whole floats."""
    if isinstance(shape, Mapping):
        if isinstance(value, dict):
            return {name: _settled(item, shape.get(name)) for name, item in value.items() if item is not None}
        return [_settled(item, shape) for item in value] if isinstance(value, list) else value
    whole = shape == _INTEGER and isinstance(value, float) and abs(value) <= _MAX_EXACT and value.is_integer()
    return int(value) if whole else value


@cache
def _shape(kind: Any) -> Shape:
    return _shape_of(msgspec.inspect.type_info(kind))


def _shape_of(kind: Type) -> Shape:
    if isinstance(kind, Metadata):
        return _shape_of(kind.type)
    if isinstance(kind, StructType):
        return {field.encode_name: _shape_of(field.type) for field in kind.fields}
    if isinstance(kind, UnionType):
        has_float = any(isinstance(member, FloatType) for member in kind.types)
        shapes = [shape for member in kind.types if (shape := _shape_of(member))]
        return shapes[0] if shapes and not has_float else None
    if isinstance(kind, ListType):
        item = _shape_of(kind.item_type)
        return item if isinstance(item, Mapping) else None
    return _INTEGER if isinstance(kind, IntType) else None


def _check_depth(value: Any) -> None:
    """Raise HTTPException for deep nesting. Deep nesting exhausts recursion, so there is none here."""
    level = [value]
    for _ in range(limits.MAX_DEPTH):
        level = [item for container in level for item in _containers(container)]
        if not level:
            return
    raise bad_request(f"the body has more than {limits.MAX_DEPTH} levels of brackets")


def _containers(value: Any) -> list[Any]:
    items = value.values() if isinstance(value, dict) else value
    return [item for item in items if isinstance(item, (dict, list))]
