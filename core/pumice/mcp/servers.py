"""The configuration of MCP servers, in the JSON form that many clients share: ``{"mcpServers": {"name": {...}}}``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Gt, Le

from pumice.config import user_directory
from pumice.errors import ConfigError
from pumice.installed import install_command
from pumice.options.reading import SettingsReader
from pumice.wording import json_problem, not_utf8

MAX_SERVERS = 32
_MAX_BYTES = 1 << 20  # of a configuration file
_SSE = "the transport SSE is obsolete; give the server's address for streamable HTTP, without type"


@dataclass(frozen=True)
class McpServer:
    """One server: a program that is started (``command``), or an address (``url``).

    Keys that only other clients know are passed over.

    Attributes:
        command: Program, found like a shell finds it; it speaks the protocol on its standard input and output.
        args: Arguments of the program.
        env: Environment variables, beside HOME, LOGNAME, PATH, SHELL, TERM and USER.
        cwd: Working directory of the program.
        url: Address of a server that speaks streamable HTTP.
        headers: HTTP headers, such as ``Authorization``.
        type: Name of the transport, for other clients; ``command`` or ``url`` decides.
        disabled: True to leave the server out.
        timeout: Maximum seconds for the start, and for each call.
        always_allow: Tools that run without a question; ``*`` stands for all.
        disabled_tools: Tools that the model does not see.
        enabled_tools: The only tools that the model sees; None for all that are not disabled.
    """

    command: str = ""
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    type: str = ""
    disabled: bool = False
    timeout: Annotated[float, Gt(0), Le(3600)] = 60.0
    always_allow: list[str] = field(default_factory=list, metadata={"key": "alwaysAllow"})
    disabled_tools: list[str] = field(default_factory=list, metadata={"key": "disabledTools"})
    enabled_tools: list[str] | None = field(default=None, metadata={"key": "enabledTools"})

    def offers(self, tool: str) -> bool:
        """Return True if the model sees a tool."""
        return tool not in self.disabled_tools and (self.enabled_tools is None or tool in self.enabled_tools)

    def allows(self, tool: str) -> bool:
        """Return True if a tool runs without a question."""
        return "*" in self.always_allow or tool in self.always_allow


def user_file() -> Path:
    """Return the path of the user's configuration of MCP servers."""
    return user_directory() / "pumice" / "mcp.json"


def read_servers_file(path: Path) -> dict[str, McpServer]:
    """Return the servers of a file. Raises ConfigError if it cannot be read or is invalid."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            raise ConfigError(f"{path}: larger than {_MAX_BYTES} bytes; expected a configuration of MCP servers")
        data = json.loads(text.decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: {not_utf8(error)}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid JSON: {json_problem(error)}") from None
    return read_servers(data, str(path))


def read_servers(data: object, source: str = "mcp") -> dict[str, McpServer]:
    """Return the servers of a configuration by their names, without disabled ones.

    Args:
        data: The object with the key ``mcpServers``.
        source: Where it comes from, for errors.

    Raises:
        ConfigError: A value is wrong; the message says which.
    """
    entries = data.get("mcpServers") if isinstance(data, Mapping) else None
    if not isinstance(entries, Mapping):
        raise ConfigError(f'{source}: expected {{"mcpServers": {{"NAME": {{"command": ...}} or {{"url": ...}}}}}}')
    if len(entries) > MAX_SERVERS:
        raise ConfigError(f"{source}: {len(entries)} MCP servers; at most {MAX_SERVERS} are used at a time")
    servers = {str(name): _read_server(f"{source}: mcpServers.{name}", entry) for name, entry in entries.items()}
    return {name: server for name, server in servers.items() if not server.disabled}


def _read_server(where: str, entry: Any) -> McpServer:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where}: expected an object with command or url")
    server = SettingsReader(where, ignore_unknown=True).record(McpServer, entry)
    if bool(server.command) == bool(server.url):
        raise ConfigError(f"{where}: give either command or url")
    if server.type.lower() == "sse":
        raise ConfigError(f"{where}: {_SSE}")
    if server.url and not server.url.startswith(("http://", "https://")):
        raise ConfigError(f"{where}: url should begin with http:// or https://, not {server.url!r:.80}")
    if any("\0" in text for text in (server.command, *server.args, *server.env, *server.env.values())):
        raise ConfigError(f"{where}: a null character in command, args or env")
    return server


def require_package() -> None:
    """Raise ConfigError if the package ``mcp`` is missing."""
    if find_spec("mcp") is None:
        raise ConfigError(f"MCP servers need the package mcp: {install_command('mcp')}")
