"""Imports among the modules of tools/."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def imports(path: Path) -> set[str]:
    """Return the modules of tools/ that a module imports anywhere, in functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tools."):
            names.add(node.module.split(".")[1])
        elif isinstance(node, ast.ImportFrom) and node.module == "tools":
            names.update(alias.name for alias in node.names)
    return names


def test_tools_import_each_other_without_a_circle():
    graph = {path.stem: imports(path) - {path.stem} for path in (ROOT / "tools").glob("*.py")}
    assert "token_units" in graph["straight_line"]
    list(TopologicalSorter(graph).static_order())
