"""Items of a response: reasoning, a message, function calls; as a list or as a stream of events."""

from __future__ import annotations

import secrets
from collections.abc import Container, Iterator, Mapping
from typing import Any

import pumice

Event = tuple[str, dict[str, Any]]
"""Type and fields of an event."""


def item_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(24)}"


class Items:
    """Turns deltas into items: each item starts, continues and is done before the next one.

    Calls of the tools ``elsewhere`` are left out.
    """

    def __init__(self, elsewhere: Container[str] = ()) -> None:
        self._elsewhere = elsewhere
        self.done: list[dict[str, Any]] = []
        self._kind = ""
        self._id = ""
        self._text: list[str] = []

    def take(self, delta: pumice.ChatDelta) -> Iterator[Event]:
        if delta.reasoning:
            yield from self._open("reasoning")
            yield self._delta("response.reasoning_text.delta", delta.reasoning)
        if delta.content:
            yield from self._open("message")
            yield self._delta("response.output_text.delta", delta.content, logprobs=[])
        for call in delta.tool_calls:
            if call.name not in self._elsewhere:
                yield from self._call(call)

    def close(self, cut: bool = False) -> Iterator[Event]:
        """Finish the open item, if any; ``cut``: a limit ended it."""
        if not self._kind:
            return
        kind, self._kind = self._kind, ""
        text, self._text = "".join(self._text), []
        part = _part(kind, text)
        where = {"item_id": self._id, "output_index": len(self.done), "content_index": 0}
        if kind == "message":
            yield "response.output_text.done", {**where, "text": text, "logprobs": []}
        else:
            yield "response.reasoning_text.done", {**where, "text": text}
        yield "response.content_part.done", {**where, "part": part}
        yield self.end({**_item(kind, self._id), "status": "incomplete" if cut else "completed", "content": [part]})

    def begin(self, item: Mapping[str, Any]) -> Event:
        """Begin an item of another kind, with no item open."""
        return "response.output_item.added", {"output_index": len(self.done), "item": item}

    def end(self, item: dict[str, Any]) -> Event:
        """Complete the item that ``begin`` began."""
        self.done.append(item)
        return "response.output_item.done", {"output_index": len(self.done) - 1, "item": item}

    def _open(self, kind: str) -> Iterator[Event]:
        if self._kind == kind:
            return
        yield from self.close()
        self._kind, self._id = kind, item_id("msg" if kind == "message" else "rs")
        yield self.begin(_item(kind, self._id))
        where = {"item_id": self._id, "output_index": len(self.done), "content_index": 0}
        yield "response.content_part.added", {**where, "part": _part(kind, "")}

    def _delta(self, kind: str, text: str, **others: Any) -> Event:
        self._text.append(text)
        where = {"item_id": self._id, "output_index": len(self.done), "content_index": 0}
        return kind, {**where, "delta": text, **others}

    def _call(self, call: pumice.ToolCall) -> Iterator[Event]:
        yield from self.close()
        index, arguments = len(self.done), call.to_dict()["function"]["arguments"]
        item = {"type": "function_call", "id": item_id("fc"), "call_id": call.id, "name": call.name}
        begun = {**item, "status": "in_progress", "arguments": ""}
        yield self.begin(begun)
        where = {"item_id": item["id"], "output_index": index}
        yield "response.function_call_arguments.delta", {**where, "delta": arguments}
        yield "response.function_call_arguments.done", {**where, "name": call.name, "arguments": arguments}
        status = "incomplete" if call.partial else "completed"
        yield self.end({**item, "status": status, "arguments": arguments})


def _item(kind: str, id: str) -> dict[str, Any]:
    item = {"id": id, "type": kind, "status": "in_progress", "content": []}
    return {**item, "role": "assistant"} if kind == "message" else {**item, "summary": []}


def _part(kind: str, text: str) -> Mapping[str, Any]:
    if kind == "message":
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "reasoning_text", "text": text}
