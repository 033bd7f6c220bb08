"""Tools of MCP servers that clients may use: ``--allow-tools``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pumice.cli.options import CommandFunction
from pumice.cli.vocabulary import option

if TYPE_CHECKING:
    from pumice.mcp import McpServer


def tool_options(group: str) -> Callable[[CommandFunction], CommandFunction]:
    """Return the decorator of a command that runs tools for requests. ``group`` is that of its options."""
    names = option(
        "--allow-tools",
        multiple=True,
        metavar="NAMES",
        group=group,
        advanced=True,
        help="MCP server whose tools run for requests that name it, or one of its tools as SERVER:TOOL. "
        "Repeatable, or with commas.",
    )
    file = option(
        "--mcp-config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        group=group,
        advanced=True,
        help="MCP servers that --allow-tools names, as JSON.  [default: mcp.json beside the user's config.yaml]",
    )
    return lambda function: names(file(function))


def allowed_servers(names: Sequence[str], path: Path | None) -> Mapping[str, McpServer]:
    """Return the servers that ``names`` allow, each with the tools that these allow; servers of no name are left out.

    Args:
        names: Names of servers, and of single tools as SERVER:TOOL.
        path: Configuration of MCP servers (default: the user's).

    Raises:
        UsageError: A server is unknown.
        ConfigError: The configuration is invalid, or the package ``mcp`` is missing.
    """
    if not names:
        if path is not None:
            raise click.UsageError(
                "--mcp-config needs --allow-tools, which names the servers whose tools clients may use"
            )
        return {}
    from pumice.mcp import read_servers_file, require_package, user_file

    if path is None and not user_file().exists():
        raise click.UsageError(
            f"--allow-tools: no MCP servers are configured: give --mcp-config, or write {user_file()}"
        )
    servers = read_servers_file(path or user_file())
    if not hasattr(os, "fork"):
        raise click.UsageError("--allow-tools needs a system that forks processes")
    require_package()
    tools: dict[str, list[str] | None] = {}
    for name in names:
        server, _, tool = (name, "", "") if name in servers else name.partition(":")
        if server not in servers:
            raise click.UsageError(
                f"--allow-tools: there is no MCP server {server!r:.80} in {path or user_file()} "
                f"(known: {', '.join(servers)[:300] or 'none'})"
            )
        chosen = tools.setdefault(server, [])
        if not tool:
            tools[server] = None
        elif chosen is not None:
            chosen.append(tool)
    return {name: _only(servers[name], only) for name, only in tools.items()}


def _only(server: McpServer, tools: Sequence[str] | None) -> McpServer:
    """Return a server with these tools alone, as far as its configuration enables them; None: with all of them."""
    if tools is None:
        return server
    enabled = [tool for tool in tools if server.offers(tool)]
    return replace(server, enabled_tools=enabled)
