"""Configurations of ``raw_mcp_server.py``."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parent / "raw_mcp_server.py"


def described(name: str, schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a tool's definition."""
    return {"name": name, "description": f"To {name}", "inputSchema": schema or {"type": "object"}}


def raw_server(folder: Path, tools: Sequence[str | Mapping[str, Any]], **settings: Any) -> dict[str, Any]:
    """Return the configuration of a server that has these tools; the file ``heard`` tells of calls."""
    folder.mkdir(exist_ok=True)
    listed = [described(tool) if isinstance(tool, str) else tool for tool in tools]
    (folder / "tools.json").write_text(json.dumps(listed))
    return {
        "command": sys.executable,
        "args": [str(PROGRAM), str(folder / "tools.json"), str(folder / "heard")],
        **settings,
    }
