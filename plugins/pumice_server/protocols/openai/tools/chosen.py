"""The tools of one request: functions that the client runs, and tools of MCP servers that this server runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from starlette.exceptions import HTTPException
from starlette.requests import Request

from pumice.chat.tool_choice import chosen_names
from pumice.mcp import HostedTools, Offer, OfferedTool, ToolError
from pumice.plugin.unstable import show_value
from pumice_server.interface import bad_request
from pumice_server.limits import MAX_NAME, MAX_TOOLS

Function = Mapping[str, Any]
"""A function in the format of OpenAI's chat completions."""

_ELSEWHERE = ("server_url", "connector_id", "tunnel_id", "headers", "authorization")
_OFF = "this server runs no tools for clients: the option --allow-tools of pumice serve allows it"


@dataclass(frozen=True)
class ServerTool:
    """A tool that the server runs; ``name`` is how the model calls it in this request."""

    name: str
    offered: OfferedTool
    needs_approval: bool

    @property
    def definition(self) -> Function:
        return self.offered.definition(self.name)


@dataclass(frozen=True)
class ChosenTools:
    """The tools of one request.

    Attributes:
        functions: Functions that the client runs.
        by_name: Tools that the server runs, by the names that the model sees.
        labels: Names of the MCP servers that the request names.
        failed: Those of ``labels`` that did not start, and so have no tools.
    """

    functions: Sequence[Function] = ()
    by_name: Mapping[str, ServerTool] = field(default_factory=dict)
    labels: Sequence[str] = ()
    failed: Sequence[str] = ()

    @property
    def definitions(self) -> list[Function]:
        """All tools, for the model."""
        return [*self.functions, *(tool.definition for tool in self.by_name.values())]

    def check_choice(self, choice: object) -> None:
        """Raise HTTPException if ``tool_choice`` needs tools that only a server that did not start could have.

        Raises RequestError for a choice in no known format.
        """
        if not self.failed or choice is None:
            return
        names = {function.get("function", {}).get("name") for function in self.functions} | self.by_name.keys()
        if chosen_names(choice) - names or (choice == "required" and not names):
            servers = ", ".join(self.failed)
            raise HTTPException(
                503, f"tool_choice: the MCP server {servers:.300} did not start, so its tools are missing; see the log"
            )

    def of(self, label: str) -> Iterator[ServerTool]:
        """Yield the tools of an MCP server."""
        return (tool for tool in self.by_name.values() if tool.offered.server == label)

    def name_of(self, label: str, own_name: str) -> str:
        """Return the name by which the model calls a tool of a server; its own name if the request lacks it."""
        return next((tool.name for tool in self.of(label) if tool.offered.own_name == own_name), own_name)


def names_servers(tools: Iterable[Mapping[str, Any]] | None) -> bool:
    """Return True if the tools of a request include an MCP server."""
    return any(tool.get("type") == "mcp" for tool in tools or ())


async def choose(
    request: Request, tools: Sequence[Mapping[str, Any]], functions: Sequence[Function], asks: bool
) -> ChosenTools:
    """Return the tools of a request that names MCP servers.

    Args:
        request: The request.
        tools: Its field ``tools``.
        functions: Functions among these, as the model reads them.
        asks: True if the protocol has requests for approval, which are then the default, as OpenAI's.

    Raises:
        HTTPException: A server or tool is unknown or not allowed, or the field is wrong.
    """
    hosted: HostedTools | None = request.app.state.tools
    if hosted is None:
        raise bad_request(f"tools: {_OFF}")
    chosen: dict[str, ServerTool] = {}
    labels: list[str] = []
    taken = {function.get("function", {}).get("name") for function in functions}
    try:
        offer = await hosted.offer({str(tool.get("server_label")) for tool in tools if tool.get("type") == "mcp"})
    except ToolError as error:
        raise HTTPException(503, str(error)) from None
    for i, tool in enumerate(tools):
        if tool.get("type") != "mcp":
            continue
        named = _Named(tool, f"tools[{i}]", hosted.servers, asks)
        if named.label in labels:
            _fail(f"tools[{i}].server_label", f"{named.label!r:.80} is named twice")
        labels.append(named.label)
        for added in named.tools(offer, taken):
            chosen[added.name] = added
            taken.add(added.name)
    return ChosenTools(functions, chosen, labels, [label for label in labels if label in offer.failed])


class _Named:
    """An MCP server as a request names it."""

    def __init__(self, tool: Mapping[str, Any], where: str, servers: Sequence[str], asks: bool) -> None:
        self._tool, self._where, self._asks = tool, where, asks
        label = tool.get("server_label")
        if not isinstance(label, str):
            _fail(f"{where}.server_label", "expected the name of an MCP server")
        for name in _ELSEWHERE:
            if tool.get(name):
                _fail(f"{where}.{name}", "only MCP servers of this server's configuration are reached, by server_label")
        if label not in servers:
            _fail(f"{where}.server_label", f"there is no MCP server {label!r:.80} (known: {', '.join(servers)[:300]})")
        self.label = label
        self._needs_approval = self._approval()

    def tools(self, offer: Offer, taken: Iterable[str | None]) -> Iterator[ServerTool]:
        """Yield the tools under names that no other tool of the request has."""
        allowed = self._names(self._tool.get("allowed_tools"), "allowed_tools")
        offered = [tool for tool in offer.tools if tool.server == self.label]
        own_names = {tool.own_name for tool in offered}
        for name in allowed or ():
            if name not in own_names:
                _fail(f"{self._where}.allowed_tools", f"{self.label} has no tool {name!r:.80} that clients may use")
        names = set(taken)
        for tool in offered:
            if allowed is not None and tool.own_name not in allowed:
                continue
            name = tool.name if tool.name not in names else f"{_identifier(self.label)}_{tool.name}"[:64]
            if name in names:
                _fail(f"{self._where}", f"two tools are called {name!r:.80}; rename the function")
            names.add(name)
            yield ServerTool(name, tool, self._needs_approval(tool.own_name))

    def _approval(self) -> Callable[[str], bool]:
        """Return a function that says whether a tool needs the user's approval."""
        where, asked = f"{self._where}.require_approval", self._tool.get("require_approval")
        if not self._asks and asked not in (None, "never"):
            _fail(where, 'chat completions have no requests for approval: use /v1/responses, or "never"')
        if asked is None or isinstance(asked, str):
            if asked not in (None, "always", "never"):
                _fail(where, f'expected "always", "never" or an object, not {show_value(asked)}')
            always = self._asks and asked != "never"
            return lambda name: always
        if not isinstance(asked, Mapping) or not asked.keys() <= {"always", "never"}:
            _fail(where, 'expected "always", "never" or an object with these')
        never = self._names(asked.get("never"), "require_approval.never") or ()
        return lambda name: name not in never

    def _names(self, value: Any, key: str) -> Collection[str] | None:
        """Return names of tools: a list, or an object with ``tool_names``."""
        where = f"{self._where}.{key}"
        if isinstance(value, Mapping):
            if value.get("read_only"):
                _fail(f"{where}.read_only", "give the names of the tools")
            value = value.get("tool_names")
        if value is None:
            return None
        if isinstance(value, list) and len(value) > MAX_TOOLS:
            _fail(where, f"it has {len(value)} names; at most {MAX_TOOLS} are accepted")
        if not isinstance(value, list) or not all(isinstance(name, str) and len(name) <= MAX_NAME for name in value):
            _fail(where, "expected a list of names")
        return dict.fromkeys(value)


def _identifier(label: str) -> str:
    return "".join(character if character.isascii() and character.isalnum() else "_" for character in label)


def _fail(where: str, problem: str) -> NoReturn:
    raise bad_request(f"{where}: {problem}")
