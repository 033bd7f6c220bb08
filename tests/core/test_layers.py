"""Imports go one way: a module of the core imports only what is above it, a plugin only ``pumice.plugin``.

A plugin of commands imports the public interface too, and what options commands have in common, the server also what
tools that run have in common, and texts of files; that of clusters what an engine is to others, and the server, whose
application it serves.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def core(names: str) -> set[str]:
    return {f"pumice.{name}" for name in names.split()}


COMMANDS = {"pumice"} | core("""
    cli.ahead cli.cluster cli.confinement cli.fetched_models cli.files cli.messages cli.llama_arguments cli.llama_names
    cli.llama_samplers cli.named_models cli.options cli.output cli.progress cli.reasoning_options cli.sampler_options
    cli.structured_output cli.vocabulary hub options process_list switching
""")
ENGINES = core("api cache_tiers config engine.messages local_engine process.codec process.engine_host process.stage")
TOOLS = {"pumice.chat.tool_choice", "pumice.chat.tools", "pumice.config", "pumice.mcp", "pumice.registry"}
FILES = {"pumice.media.documents"}
ALSO = {"pumice_server": COMMANDS | TOOLS | FILES, "pumice_ray": COMMANDS | ENGINES}
DECLARED = ("answer_types", "field_types", "limits", "message_types")  # modules that only declare
BELOW = {"pumice_ray": "pumice_server"}
"""The plugin that another builds on."""
MAP = (ROOT / "docs" / "architecture.md").read_text().partition("\nplugins/")[0]
ROWS = "\n".join(re.findall(r"^    (\w.*?)  ", MAP, flags=re.MULTILINE))
PARTS = re.findall(r"(\w+)(?:\.py|/)", ROWS)
"""The modules and packages of the core, in the order of the map: each imports only those before it."""
LEVEL = {part: level for level, part in enumerate([*PARTS, "__main__"])}


@cache
def import_statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Those of a file, also inside functions, in one pass for all tests."""
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of each module that a file imports."""
    for node in import_statements(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        else:
            assert node.level == 0, f"{path}:{node.lineno}: import by full name"
            # `from pumice import x` may name a module; `import pumice` is the public interface.
            names = [f"pumice.{alias.name}" for alias in node.names] if node.module == "pumice" else [node.module]
            yield from ((node.lineno, name) for name in names)


def wrong(paths: Iterable[Path], is_wrong: Callable[[str], bool]) -> list[str]:
    """Return the places of wrong imports."""
    return [
        f"{path.relative_to(ROOT)}:{line}: {name}" for path in paths for line, name in imports(path) if is_wrong(name)
    ]


def part(name: str) -> str:
    """``pumice.graph.ops`` -> ``graph``; what is no module of the core is what ``pumice`` itself exports."""
    piece = name.split(".")[1] if "." in name else "__init__"
    return piece if piece in LEVEL else "__init__"


def core_modules() -> list[Path]:
    return sorted((ROOT / "core" / "pumice").rglob("*.py"))


def test_every_module_of_the_core_has_a_layer():
    parts = {path.relative_to(ROOT / "core" / "pumice").parts[0].removesuffix(".py") for path in core_modules()}
    assert parts == set(LEVEL)


def test_modules_of_the_core_import_only_layers_above():
    for path in core_modules():
        level = LEVEL[path.relative_to(ROOT / "core" / "pumice").parts[0].removesuffix(".py")]
        is_above = partial(lambda own, name: name.split(".")[0] == "pumice" and LEVEL[part(name)] > own, level)
        assert wrong([path], is_above) == []


def test_rooms_of_the_engine_import_only_rooms_named_before_them():
    (named,) = re.findall(r"^    engine/ .*its rooms: (.*)$", MAP, flags=re.MULTILINE)
    rooms = ["messages", "client", *named.split(", ")]
    level = {room: index for index, room in enumerate(rooms)}
    folder = ROOT / "core" / "pumice" / "engine"
    assert {path.stem for path in folder.iterdir() if not path.stem.startswith("__")} == set(rooms)
    for path in folder.rglob("*.py"):
        own = level.get(path.relative_to(folder).parts[0].removesuffix(".py"), len(rooms))
        is_below = partial(lambda own, name: name[:14] == "pumice.engine." and level[name.split(".")[2]] > own, own)
        assert wrong([path], is_below) == []


def test_the_core_knows_no_plugin():
    plugins = {path.name for path in (ROOT / "plugins").iterdir()}
    assert wrong(core_modules(), lambda name: name.partition(".")[0] in plugins) == []


@pytest.mark.parametrize("plugin", sorted(path.name for path in (ROOT / "plugins").glob("pumice_*")))
def test_a_plugin_imports_of_pumice_only_the_contract(plugin):
    also, own = ALSO.get(plugin, set()), ("pumice.plugin.", f"{plugin}.", f"{BELOW.get(plugin, plugin)}.")

    def is_wrong(name: str) -> bool:
        return name.startswith("pumice") and not f"{name}.".startswith(own) and name not in also

    assert wrong((ROOT / "plugins" / plugin).rglob("*.py"), is_wrong) == []


SHARED = {f"pumice_server.{name}" for name in ("interface", "catalogue", *DECLARED)}
LIBRARIES = {"pumice", "pumice.mcp", "pumice.hub", "pumice.chat.tool_choice", "pumice.chat.tools"}
BUILT_ON = {"vertex": "openai"}
"""The protocol that another wraps."""
PROTOCOLS = ROOT / "plugins" / "pumice_server" / "protocols"


@pytest.mark.parametrize(
    "protocol", sorted(path.name for path in PROTOCOLS.iterdir() if (path / "__init__.py").exists())
)
def test_a_protocol_imports_of_the_server_only_the_interface_of_protocols(protocol):
    own = tuple(f"pumice_server.protocols.{name}" for name in (protocol, BUILT_ON.get(protocol, protocol)))

    def is_wrong(name: str) -> bool:
        is_own = name.startswith(own) or f"{name}.".startswith("pumice.plugin.")
        return name.startswith("pumice") and not is_own and name not in SHARED | LIBRARIES

    assert wrong((PROTOCOLS / protocol).rglob("*.py"), is_wrong) == []


def test_the_server_knows_no_protocol():
    paths = (path for path in (ROOT / "plugins" / "pumice_server").rglob("*.py") if PROTOCOLS not in path.parents)
    assert wrong(paths, lambda name: name.startswith("pumice_server.protocols")) == []


def test_no_module_imports_itself_through_others():
    """Imports inside functions and for type checkers count too."""
    sources = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for root in (ROOT / "core", ROOT / "plugins")
        for path in root.rglob("*.py")
    }
    edges = {
        module: {name for name in named_modules(path, sources) if name != module} for module, path in sources.items()
    }
    assert cycles(edges) == []


def named_modules(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules of ours that a file imports; of ``from package import name`` the submodule, if it is one."""
    for node in import_statements(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        else:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else node.module for name in inside if node.module in known)


def cycles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the part of the graph in cycles, by removing modules without imports or importers until none is left."""
    left = dict(edges)
    while True:
        imported = set().union(*left.values()) if left else set()
        kept = {
            m: {n for n in names if n in left} for m, names in left.items() if names & left.keys() and m in imported
        }
        if kept == left:
            return [[module, *sorted(names)] for module, names in sorted(left.items())]
        left = kept
