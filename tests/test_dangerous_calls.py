"""Options of calls that run what they are given, and assertions of input; ruff finds the calls themselves."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("core", "plugins", "integrations", "tools", "bench")
DANGER = re.compile(r"\b(?:shell|allow_pickle|trust_remote_code)=(?!False\b)|\b__import__\(")
ASSERTIONS = {
    "core/pumice/testing.py": "a test kit, whose failures are assertions",
    "core/pumice/graph/source.py": "of what an architecture's own function gives",
    "plugins/pumice_vulkan/lower/vectors.py": "of a call that this module has put together",
    "plugins/pumice_vulkan/memory.py": "of places that the memory plan gave",
    "plugins/pumice_cpu/codegen.py": "of the names of a kernel's parameters, which are source code",
}
"""Modules with an ``assert`` that does more than tell a type: it is gone with ``python -O``, so never of input."""


def tells_a_type(test: ast.expr) -> bool:
    """``x``, ``x is not None``, ``isinstance(x, ...)``: for who reads types."""
    if isinstance(test, ast.Compare):
        return isinstance(test.ops[0], ast.Is | ast.IsNot)
    if isinstance(test, ast.UnaryOp):
        return tells_a_type(test.operand)
    if isinstance(test, ast.Call):
        return ast.unparse(test.func) == "isinstance"
    return isinstance(test, ast.Name | ast.Attribute)


def has_assertions(path: Path) -> bool:
    text = path.read_text()
    nodes = ast.walk(ast.parse(text)) if "assert " in text else ()
    return any(not tells_a_type(node.test) for node in nodes if isinstance(node, ast.Assert))


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_call_is_given_leave_to_run_anything(folder):
    files = [path for path in (ROOT / folder).rglob("*.py") if "tests" not in path.parts]
    assert [str(path) for path in files if DANGER.search(path.read_text())] == []


def test_assertions_are_of_types_alone():
    files = [path for folder in FOLDERS[:2] for path in (ROOT / folder).rglob("*.py")]
    assert {str(path.relative_to(ROOT)) for path in files if has_assertions(path)} == ASSERTIONS.keys()
