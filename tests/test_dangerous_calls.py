"""Calls that run what they are given, or read it as objects: each that there is has its reason here."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("core", "plugins", "integrations", "tools", "bench")

DANGEROUS = {
    "eval",
    "exec",
    "__import__",
    "os.system",
    "os.popen",
    "tempfile.mktemp",
    "torch.load",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "yaml.load_all",
}
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "code", "codeop"}
MODULES |= {"joblib", "jsonpickle", "numpy.lib.format", "multiprocessing.connection"}

REASONS = {
    ("core/pumice/config.py", "yaml.load"): "with a loader of its own, a subclass of SafeLoader",
    ("plugins/pumice_cpu/kernels/elementwise.py", "exec"): "of the table of operations: no file adds to it",
    ("tools/compile_kernels.py", "multiprocessing"): "pickles between a build tool and its own children",
    ("bench/compare_architectures.py", "multiprocessing"): "pickles between a benchmark and its own children",
    ("tools/demo_model/checker.py", "multiprocessing"): "pickles between a build tool and its own children",
    ("tools/demo_model/corpus.py", "multiprocessing"): "pickles between a build tool and its own children",
    ("tools/draft_models/corpus.py", "multiprocessing"): "pickles between a build tool and its own children",
    ("tools/demo_vision/data.py", "multiprocessing"): "pickles between a build tool and its own children",
}
ASSERTIONS = {
    "core/pumice/testing.py": "a test kit, whose failures are assertions",
    "core/pumice/graph/source.py": "of what an architecture's own function gives",
    "plugins/pumice_vulkan/lower/vectors.py": "of a call that this module has put together",
    "plugins/pumice_vulkan/memory.py": "of places that the memory plan gave",
    "plugins/pumice_cpu/codegen.py": "of the names of a kernel's parameters, which are source code",
}
"""Modules with an ``assert`` that does more than tell a type: it is gone with ``python -O``, so never of input."""


def sources() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if "tests" not in path.parts)


def name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def dangers(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and name of each."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in MODULES or alias.name.split(".")[0] in MODULES | {"multiprocessing"}:
                    yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module in MODULES or node.module.split(".")[0] in MODULES | {"multiprocessing"}:
                yield node.lineno, node.module
            yield from (
                (node.lineno, name) for each in node.names if (name := f"{node.module}.{each.name}") in DANGEROUS
            )
        elif isinstance(node, ast.Call):
            given = {each.arg: each.value for each in node.keywords}
            name = name_of(node.func)
            if name in DANGEROUS:
                yield node.lineno, name
            for option in ("shell", "allow_pickle", "trust_remote_code"):
                value = given.get(option)
                if value is not None and not (isinstance(value, ast.Constant) and value.value is False):
                    yield node.lineno, option


class Found(NamedTuple):
    dangers: list[str]
    has_assertions: bool  # that do more than tell a type


@cache
def found_in(path: Path) -> Found:
    """What a file has, in one pass for both tests."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    asserted = (node.test for node in nodes if isinstance(node, ast.Assert))
    return Found([name for _, name in dangers(nodes)], any(not tells_a_type(test) for test in asserted))


def tells_a_type(test: ast.expr) -> bool:
    """``x``, ``x is not None``, ``isinstance(x, ...)``: for who reads types."""
    if isinstance(test, ast.Compare):
        return isinstance(test.ops[0], ast.Is | ast.IsNot)
    if isinstance(test, ast.UnaryOp):
        return tells_a_type(test.operand)
    if isinstance(test, ast.Call):
        return name_of(test.func) == "isinstance"
    return isinstance(test, ast.Name | ast.Attribute)


def test_each_has_a_reason():
    found = {(str(path.relative_to(ROOT)), name) for path in sources() for name in found_in(path).dangers}
    assert found == REASONS.keys()


def test_assertions_are_of_types_alone():
    found = {
        str(path.relative_to(ROOT))
        for path in sources()
        if (path.is_relative_to(ROOT / "core") or path.is_relative_to(ROOT / "plugins"))
        and found_in(path).has_assertions
    }
    assert found == ASSERTIONS.keys()


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import multiprocessing as m",
        "eval('1')",
        "import yaml; yaml.load(a, b)",
        "from os import system",
        "subprocess.run('ls', shell=True)",
        "subprocess.run('ls', shell=yes)",
        "np.load(path, allow_pickle=True)",
        "load(path, trust_remote_code=True)",
    ],
)
def test_they_are_found(source):
    assert list(dangers(ast.walk(ast.parse(source))))


def test_harmless_calls_are_not_reported():
    source = "import json, re; re.compile('a'); yaml.safe_load(a); subprocess.run(['ls'], shell=False); np.load(a)"
    assert not list(dangers(ast.walk(ast.parse(source))))
