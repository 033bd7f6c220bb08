"""Items of a response for tools of MCP servers, as OpenAI's: lists of tools, calls, requests for approval."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from pumice.chat.tools import REFUSED
from pumice_server.interface import bad_request
from pumice_server.protocols.openai.response_items import Event, Items, item_id
from pumice_server.protocols.openai.tools.chosen import ChosenTools
from pumice_server.protocols.openai.tools.turns import Call, Outcome

_CALL, _ASKED = "mcp_", "mcpr_"  # begin the ids of items; the call's id follows
_NO_TOOLS = "the MCP server has no tools that clients may use, or cannot be reached"


def listed_servers(items: str | Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the servers whose lists of tools are among items of an input or a response, if they could be listed."""
    entries = () if isinstance(items, str) else items
    labels = (
        item.get("server_label") for item in entries if item.get("type") == "mcp_list_tools" and not item.get("error")
    )
    return frozenset(label for label in labels if isinstance(label, str))


def list_tools(items: Items, tools: ChosenTools, listed: Collection[str]) -> Iterator[Event]:
    """Add a list of tools for each server that is not ``listed`` already."""
    for label in tools.labels:
        if label in listed:
            continue
        item: dict[str, Any] = {
            "type": "mcp_list_tools",
            "id": item_id("mcpl"),
            "server_label": label,
            "tools": [],
            "error": None,
        }
        where = items.begin(item)
        yield where
        place = {"item_id": item["id"], "output_index": where[1]["output_index"]}
        yield "response.mcp_list_tools.in_progress", place
        listing = [_listed(tool.offered.own_name, tool.definition["function"]) for tool in tools.of(label)]
        yield f"response.mcp_list_tools.{'completed' if listing else 'failed'}", place
        yield items.end({**item, "tools": listing, "error": None if listing else _NO_TOOLS})


def begin_call(items: Items, call: Call) -> Iterator[Event]:
    """Add a call that runs; ``end_call`` completes it before another item begins."""
    item = {**_call_item(call, _CALL), "type": "mcp_call", "status": "in_progress", "arguments": ""}
    begin = items.begin({**item, "approval_request_id": None, "output": None, "error": None})
    yield begin
    place = {"item_id": item["id"], "output_index": begin[1]["output_index"]}
    yield "response.mcp_call.in_progress", place
    yield "response.mcp_call_arguments.delta", {**place, "delta": call.arguments}
    yield "response.mcp_call_arguments.done", {**place, "arguments": call.arguments}


def end_call(items: Items, call: Call, outcome: Outcome, was_asked: bool) -> Iterator[Event]:
    """Complete a call; ``was_asked``: the user approved it."""
    item = {**ended_call(call, outcome), "approval_request_id": _ASKED + call.call.id if was_asked else None}
    yield f"response.mcp_call.{item['status']}", {"item_id": item["id"], "output_index": len(items.done)}
    yield items.end(item)


def ended_call(call: Call, outcome: Outcome) -> dict[str, Any]:
    """Return the item of a call that has ended."""
    item = {**_call_item(call, _CALL), "type": "mcp_call", "status": "failed" if outcome.is_error else "completed"}
    error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": outcome.text}]}
    ends = {"output": None, "error": error} if outcome.is_error else {"output": outcome.text, "error": None}
    return {**item, "approval_request_id": None, **ends}


def ask(items: Items, call: Call) -> Iterator[Event]:
    """Add a request for the user's approval."""
    item = {**_call_item(call, _ASKED), "type": "mcp_approval_request"}
    yield items.begin(item)
    yield items.end(item)


def read_approvals(input: str | Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return for the id of each call that the user answered the refusal, or an empty string if it may run."""
    approvals: dict[str, str] = {}
    for i, item in enumerate([] if isinstance(input, str) else input):
        if item.get("type") != "mcp_approval_response":
            continue
        id, reason = item.get("approval_request_id"), item.get("reason")
        if not isinstance(id, str) or not id.startswith(_ASKED):
            raise bad_request(f"input[{i}].approval_request_id: expected the id of an mcp_approval_request")
        refusal = f"{REFUSED}: {reason}" if isinstance(reason, str) and reason else REFUSED
        approvals[id.removeprefix(_ASKED)] = "" if item.get("approve") is True else refusal
    return approvals


def check_approvals(approvals: Iterable[str], messages: Sequence[Mapping[str, Any]]) -> None:
    """Raise HTTPException for an approval of a call that the chat does not have."""
    calls = {call.get("id") for message in messages for call in message.get("tool_calls") or ()}
    for id in approvals:
        if id not in calls:
            raise bad_request(f"input: there is no mcp_approval_request {_ASKED + id!r:.80} to answer")


def with_calls(input: str | Sequence[Mapping[str, Any]], tools: ChosenTools) -> str | list[Mapping[str, Any]]:
    """Return input with calls of MCP servers, and requests for approval, as calls of functions and their outputs."""
    return input if isinstance(input, str) else [item for entry in input for item in _as_function(entry, tools)]


def _as_function(item: Mapping[str, Any], tools: ChosenTools) -> Iterator[Mapping[str, Any]]:
    kind = item.get("type")
    if kind in ("mcp_list_tools", "mcp_approval_response"):
        return
    if kind not in ("mcp_call", "mcp_approval_request"):
        yield item
        return
    id = str(item.get("id", "")).removeprefix(_CALL if kind == "mcp_call" else _ASKED)
    name = tools.name_of(str(item.get("server_label")), str(item.get("name")))
    yield {"type": "function_call", "call_id": id, "name": name, "arguments": item.get("arguments")}
    if kind == "mcp_call":
        error = item.get("error")
        output = item.get("output") if error is None else f"Error: {_error_text(error)}"
        yield {"type": "function_call_output", "call_id": id, "output": output or ""}


def _error_text(error: Any) -> str:
    """Return the text of an error that a request repeats."""
    content = error.get("content") if isinstance(error, Mapping) else None
    if isinstance(content, list) and content and isinstance(content[0], Mapping):
        return str(content[0].get("text", ""))
    return error if isinstance(error, str) else orjson.dumps(error).decode()


def _call_item(call: Call, prefix: str) -> dict[str, Any]:
    return {
        "id": prefix + call.call.id,
        "server_label": call.tool.offered.server,
        "name": call.tool.offered.own_name,
        "arguments": call.arguments,
    }


def _listed(name: str, function: Mapping[str, Any]) -> dict[str, Any]:
    schema = function["parameters"]
    return {"name": name, "description": function["description"], "input_schema": schema, "annotations": None}
