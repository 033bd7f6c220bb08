"""The JSON body of a request: read within bounds, its fields taken by type."""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request

from pumice_server import limits
from pumice_server.errors import bad_request
from pumice_server.limits import Kind
from pumice_server.work import aside

T = TypeVar("T")

_MOST_EXACT = 2.0**53  # up to it a float that is whole stands for one integer alone
_NOUNS: dict[type, str] = {str: "text", int: "an integer", bool: "true or false", list: "a list", dict: "an object"}


class Body:
    """The fields of a request, within their bounds. One that is null is as good as absent, 4.0 as good as 4.

    Attributes:
        fields: those that have bounds in ``limits``; others are as good as absent.
        size: bytes of the request's body.
    """

    def __init__(
        self, fields: Mapping[str, Any], size: int = 0, bounds: Mapping[str, Sequence[Kind]] = limits.FIELDS
    ) -> None:
        """Raises HTTPException for a value that is not what its field may be."""
        self.fields: dict[str, Any] = {}
        self.size = size
        self._bounds = bounds
        for name, value in fields.items():
            kinds = bounds.get(name)
            if value is None or kinds is None:
                continue
            self.fields[name] = _whole(value)
            problem = limits.check(name, self.fields[name], kinds)
            if problem:
                raise bad_request(problem)

    @classmethod
    async def read(cls, request: Request) -> Body:
        """Raises HTTPException for what is no JSON object, too slow, or out of bounds."""
        return await _read(request, cls._parse)

    @classmethod
    def _parse(cls, data: Sequence[bytes]) -> Body:
        return cls(_as_object(_parse(data)), sum(map(len, data)))

    def get(self, name: str, kind: type[T], default: T) -> T:
        value = self.first(name)
        if value is None:
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise bad_request(f"{name} must be {_NOUNS[kind]}, not {limits.shown(value)}")
        return value

    def integer(self, name: str, default: int, least: int | None = None, most: int | None = None) -> int:
        """``least`` and ``most`` narrow the bounds of the field."""
        value = self.get(name, int, default)
        known = limits.integers(self._bounds[name])
        narrow = limits.Whole(known.least if least is None else least, known.most if most is None else most)
        problem = limits.check(name, value, [narrow])
        if problem:
            raise bad_request(problem)
        return value

    def number(self, name: str, default: float) -> float:
        value: float = self.fields.get(name, default)
        return value

    @property
    def wants_usage(self) -> bool:
        """Whether a stream is to end with its usage."""
        return self.get("stream_options", dict, {}).get("include_usage") is True

    def first(self, *names: str) -> Any:
        """The value under the first of these names that is there. Raises LookupError for a name without a bound."""
        for name in names:
            if name not in self._bounds:
                raise LookupError(f"the field {name!r} has no bound: give it one in limits.py")
        return next((self.fields[name] for name in names if name in self.fields), None)

    async def aside(self, function: Callable[..., T], *arguments: Any) -> T:
        """Read what takes as long as the body is large: beside the event loop, if it is."""
        return await aside(function, *arguments, size=self.size)


async def read_object(request: Request) -> dict[str, Any]:
    """The body, which is a JSON object. Raises as ``read_json``, and HTTPException for anything else."""
    return _as_object(await read_json(request))


async def read_json(request: Request) -> Any:
    """The body, whatever JSON it is. Raises HTTPException."""
    return await _read(request, _parse)


async def _read(request: Request, parse: Callable[[Sequence[bytes]], T]) -> T:
    """What is made of the parts of the body. Raises HTTPException."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                _arriving.add(len(part), size)
                parts.append(part)
        return await aside(parse, parts, size=size)
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {limits.BODY_SECONDS:g} seconds") from None
    finally:
        _arriving.size -= size


class Arriving:
    """The bytes of all bodies that are not read yet."""

    size = 0

    def add(self, n: int, of_body: int) -> None:
        """Raises HTTPException where that is too much; small bodies always have room."""
        self.size += n
        if self.size > limits.MAX_ARRIVING and of_body > limits.SMALL_BODY:
            raise HTTPException(503, "too many large bodies arrive at once: try again later")


_arriving = Arriving()


def _as_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise bad_request("the body must be a JSON object")
    return value


def _parse(parts: Sequence[bytes]) -> Any:
    data = b"".join(parts).removeprefix(BOM_UTF8)
    if len(data) > limits.MAX_VALUES and sum(map(data.count, (b",", b"[", b"{"))) > limits.MAX_VALUES:
        raise bad_request(f"the body has more than {limits.MAX_VALUES} commas and opening brackets")
    if len(data) > limits.MAX_BRACKETS and data.count(b"[") + data.count(b"{") > limits.MAX_BRACKETS:
        raise bad_request(f"the body has more than {limits.MAX_BRACKETS} opening brackets")
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the body is not valid JSON: {error}") from None
    if isinstance(value, (dict, list)):
        _check_depth(value)
    return value


def _whole(value: Any) -> Any:
    """An integer, where a float is one."""
    exact = isinstance(value, float) and abs(value) <= _MOST_EXACT and value.is_integer()
    return int(value) if exact else value


def _check_depth(value: Any) -> None:
    """Without recursion, since that is what deep nesting exhausts."""
    level = [value]
    for _ in range(limits.MAX_DEPTH):
        level = [item for each in level for item in _items(each)]
        if not level:
            return
    raise bad_request(f"the body has more than {limits.MAX_DEPTH} levels of brackets")


def _items(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [item for item in value.values() if isinstance(item, (dict, list))]
    return [item for item in value if isinstance(item, (dict, list))]
