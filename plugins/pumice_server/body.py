"""The JSON body of a request: read within bounds, its fields taken by type."""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import Any, TypeVar

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request

from pumice_server.errors import bad_request

T = TypeVar("T")

MAX_DEPTH = 64  # brackets within brackets
_BODY_SECONDS = 60.0  # for a body to arrive
_MOST_EXACT = 2.0**53  # up to it a float that is whole stands for one integer alone
_NOUNS: dict[type, str] = {str: "text", int: "an integer", bool: "true or false", list: "a list", dict: "an object"}


class Body:
    """The fields of a request. One that is null is as good as absent, 4.0 as good as 4."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.fields = {name: _whole(value) for name, value in fields.items() if value is not None}

    @classmethod
    async def read(cls, request: Request) -> Body:
        """Raises HTTPException for what is no JSON object, or too slow."""
        return cls(await read_object(request))

    def get(self, name: str, kind: type[T], default: T) -> T:
        value = self.fields.get(name, default)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise bad_request(f"{name} must be {_NOUNS[kind]}, not {_shown(value)}")
        return value

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        value = self.get(name, int, default)
        if not least <= value <= most:
            raise bad_request(f"Field '{name}': Value must be between {least} <= value <= {most}, but got {value}")
        return value

    def number(self, name: str, default: float) -> float:
        value = self.fields.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise bad_request(f"{name} must be a number, not {_shown(value)}")
        return value

    @property
    def wants_usage(self) -> bool:
        """Whether a stream is to end with its usage."""
        return self.get("stream_options", dict, {}).get("include_usage") is True

    def first(self, *names: str) -> Any:
        """The value under the first of these names that is there."""
        return next((self.fields[name] for name in names if name in self.fields), None)


async def read_object(request: Request) -> dict[str, Any]:
    """The body, which is a JSON object. Raises as ``read_json``, and HTTPException for anything else."""
    fields = await read_json(request)
    if not isinstance(fields, dict):
        raise bad_request("the body must be a JSON object")
    return fields


async def read_json(request: Request) -> Any:
    """The body, whatever JSON it is. Raises HTTPException."""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            data = await request.body()
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {_BODY_SECONDS:g} seconds") from None
    try:
        value = orjson.loads(data.removeprefix(BOM_UTF8))
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
    for _ in range(MAX_DEPTH):
        level = [item for each in level for item in _items(each)]
        if not level:
            return
    raise bad_request(f"the body has more than {MAX_DEPTH} levels of brackets")


def _items(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [item for item in value.values() if isinstance(item, (dict, list))]
    return [item for item in value if isinstance(item, (dict, list))]


def _shown(value: Any) -> str:
    return f"{value!r:.60}"
