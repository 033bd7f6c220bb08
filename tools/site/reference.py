"""Text of the pages that the code already holds: commands, signatures, routes, settings, models, error messages.

A page of docs/ says where such text belongs with ``<!-- generated: NAME -->``; `fill` puts the Markdown of the function
``NAME`` there when the site is built. Nothing generated is kept in the repository.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import click
import yaml

ROOT = Path(__file__).resolve().parents[2]
_PLACE = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)


def fill(page: str, text: str) -> str:
    """Return the page with its generated parts; ``index`` also gets the navigation, which is the order of its links.

    Raises KeyError for a name that no generator has.
    """
    text = _PLACE.sub(lambda match: GENERATORS[match[1]](), text)
    return text + navigation(text) if page == "index" else text


def navigation(index: str) -> str:
    """Return a hidden table of contents for each section of the front page, with the pages that it links."""
    parts = []
    for title, body in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", index, re.MULTILINE | re.DOTALL):
        pages = re.findall(r"^[-*\d.]+ \[[^\]]+\]\((\w+)\.md\)", body, re.MULTILINE)
        if pages:
            parts.append("\n```{toctree}\n:hidden:\n:caption: " + title + "\n\n" + "\n".join(pages) + "\n```\n")
    return "".join(parts)


# --- Markdown


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    names = list(header)
    lines = [names, ["---"] * len(names), *rows]
    return "".join("| " + " | ".join(cell.replace("\n", " ") for cell in line) + " |\n" for line in lines)


def code(text: object) -> str:
    """Return text as inline code that may stand in a table."""
    shown = str(text).replace("|", r"\|")
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"


def plain(text: str) -> str:
    """Return text of help or of docstrings whose characters have no meaning in Markdown."""
    text = re.sub(r"``(.+?)``", r"`\1`", text)
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        piece.replace("|", r"\|") if i % 2 else re.sub(r"([|*<>\[\]_$])", r"\\\1", piece)
        for i, piece in enumerate(pieces)
    )


# --- Command line


def commands() -> str:
    """Every command with its usage, help and options."""
    from pumice.cli import cli

    parent = click.Context(cli, info_name="pumice")
    return "\n".join(text for name in cli.list_commands(parent) for text in _command(cli, name, parent, 2))


def _command(group: Any, name: str, parent: click.Context, level: int) -> Iterator[str]:
    command = group.get_command(parent, name)
    with click.Context(command, info_name=name, parent=parent) as context:
        usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
        yield f"{'#' * level} {context.command_path}\n\n```text\n{usage}\n```\n"
        yield from _help(command.help or "")
        records = filter(None, (parameter.get_help_record(context) for parameter in command.get_params(context)))
        options = [(code(names), plain(text)) for names, text in records if text and "--help" not in names]
        if options:
            yield table(["option", "meaning"], options)
        if isinstance(command, click.Group):
            for child in command.list_commands(context):
                yield from _command(command, child, context, level + 1)


def _help(text: str) -> Iterator[str]:
    """Paragraphs; those that click does not wrap (``\\b``) are blocks of text."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            yield f"```text\n{paragraph.removeprefix(chr(8)).strip(chr(10))}\n```\n"
        else:
            yield plain(paragraph) + "\n"


# --- Python


def _directives(lines: Iterable[str]) -> str:
    return "```{eval-rst}\n" + "\n".join(lines) + "\n```\n"


def _automatic(kind: str, name: str, **options: str) -> str:
    shown = (f"   :{option.replace('_', '-')}: {value}".rstrip() for option, value in options.items())
    return _directives([f".. {kind}:: {name}", *shown])


def python() -> str:
    """The public interface: what ``pumice.__all__`` names, in the order of use."""
    import pumice

    functions = [name for name in pumice.__all__ if inspect.isfunction(getattr(pumice, name))]
    classes = [name for name in pumice.__all__ if inspect.isclass(getattr(pumice, name))]
    errors = [name for name in classes if name.endswith("Error")]
    models = ["Model", "ProcessModel", "LinkedModel"]
    values = [name for name in classes if name not in {*errors, *models}]
    parts = ["## Loading\n", *(_automatic("autofunction", f"pumice.{name}") for name in functions)]
    parts += ["## Models\n", _automatic("autoclass", "pumice.Model", members="", inherited_members="")]
    parts += [_automatic("autoclass", f"pumice.{name}", show_inheritance="") for name in models[1:]]
    parts += ["## Results and messages\n"]
    parts += [_automatic("autoclass", f"pumice.{name}", members="", inherited_members="tuple") for name in values]
    parts += ["## Exceptions\n"]
    parts += [_automatic("autoexception", f"pumice.{name}", show_inheritance="") for name in errors]
    return "\n".join(parts)


def plugin_contract() -> str:
    """What a plugin may import: the classes, functions and constants of ``pumice.plugin``."""
    import pumice.plugin as contract

    objects = {name: getattr(contract, name) for name in contract.__all__}
    classes = {name: thing for name, thing in objects.items() if inspect.isclass(thing)}
    first = ["Architecture", "GraphBuilder", "HParams", "Backend", "Program", "Sampler", "Tokenizer", "PreTokenizer"]
    first += ["ChatFormat", "Quantizer", "Cluster"]
    ordered = [name for name in first if name in classes]
    ordered += [name for name in classes if name not in first and not issubclass(classes[name], Exception)]
    parts = ["## Classes\n"]
    parts += [_automatic("autoclass", f"pumice.plugin.{name}", members="") for name in ordered]
    functions = [name for name, thing in objects.items() if inspect.isroutine(thing)]
    parts += ["## Functions\n", *(_automatic("autofunction", f"pumice.plugin.{name}") for name in functions)]
    return "\n".join(parts)


def operations() -> str:
    """The operations of a graph with their formulas."""
    from pumice.graph import OPERATIONS

    rows = []
    for name, operation in sorted(OPERATIONS.items()):
        rule = getattr(operation, "rule", None) or operation
        rows.append((code(name), plain(" ".join((inspect.getdoc(rule) or "").split("\n\n")[0].split()))))
    return table(["operation", "meaning"], rows)


# --- Server


def routes() -> str:
    """Every path that the server answers, with the scope that a key needs for it."""
    from pumice_server import application

    rows = []
    for method, endpoints in (("GET", application.GET), ("POST", application.POST), ("DELETE", application.DELETE)):
        for endpoint, paths in endpoints.items():
            scope = "admin" if endpoint in application.ADMIN else "infer"
            scope = "none" if endpoint in application.PUBLIC else scope
            rows += [(path, method, scope) for path in paths]
    return table(["path", "method", "scope"], [(code(path), method, scope) for path, method, scope in sorted(rows)])


def unserved_routes() -> str:
    """Paths of llama-server that answer 501, with the reason."""
    from pumice_server.unserved import REASONS

    rows = [(code(path), method, plain(reason)) for (method, path), reason in sorted(REASONS.items())]
    return table(["path", "method", "reason"], rows)


# --- Configuration


def configuration() -> str:
    """The keys of a configuration file with type, bounds and default."""
    from pumice.config import Config

    defaults = yaml.safe_load((ROOT / "registry.yaml").read_text())
    rows = []
    for key, field in Config.model_fields.items():
        bounds = [f"at least {bound.ge}" for bound in field.metadata if getattr(bound, "ge", None) is not None]
        shown = yaml.safe_dump(defaults[key], default_flow_style=True, width=1000).removesuffix("...\n").strip()
        rows.append((code(key), code(_type(field.annotation)), ", ".join(bounds) or "-", code(shown)))
    return table(["key", "type", "bounds", "default"], rows)


def _type(hint: Any) -> str:
    """Return a type as a user writes it: ``"on" | "off"``, ``list[str]``."""
    if get_origin(hint) is not None and str(get_origin(hint)) == "typing.Literal":
        return " | ".join(repr(value) for value in get_args(hint))
    if inspect.isclass(hint) and get_origin(hint) is None:
        return hint.__name__
    return re.sub(r"\b(?:typing|collections\.abc|pumice(?:\.\w+)*)\.(?=\w)", "", str(hint))


def samplers() -> str:
    """The samplers with their parameters, ranges and defaults."""
    from pumice_samplers import SAMPLERS

    rows = []
    for name, sampler in SAMPLERS.items():
        hints = get_type_hints(sampler, include_extras=True)
        for field in dataclasses.fields(sampler):
            factory = field.default_factory
            default = field.default if factory is dataclasses.MISSING else factory()
            rows.append((code(name), code(field.name), _bounds(hints[field.name]) or "-", code(repr(default))))
    return table(["sampler", "parameter", "bounds", "default"], rows)


def _bounds(hint: Any) -> str:
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    return ", ".join(
        f"{word} {getattr(bound, key)}"
        for bound in getattr(hint, "__metadata__", ())
        for key, word in words.items()
        if getattr(bound, key, None) is not None
    )


# --- Models


def catalogue() -> str:
    """The short names of models, what they stand for, and the sampling parameters that their makers recommend."""
    records = yaml.safe_load((ROOT / "core" / "pumice" / "hub" / "catalogue.yaml").read_text())
    rows = []
    for name, record in records.items():
        sampling = ", ".join(f"{key} {value}" for key, value in record.get("sampling", {}).items())
        rows.append((code(name), code(record["model"]), sampling or "-"))
    return table(["name", "model", "sampling"], rows)


def bits() -> str:
    """The size of a tensor's numbers in each type: bits, and GB for a billion parameters."""
    from pumice.gguf import GGMLType, block_size, type_size

    common = ["F16", "Q8_0", "Q6_K", "Q5_K", "Q4_K", "IQ4_XS", "Q3_K", "Q2_K", "IQ2_XXS", "IQ1_S"]
    rows = []
    for name in common:
        kind = GGMLType[name]
        size = 8 * type_size(kind) / block_size(kind)
        rows.append((code(name), f"{size:.2f}", *(f"{n * size / 8:.1f}" for n in (1, 4, 8, 14, 32, 70))))
    return table(["type", "bits", *(f"{n} B" for n in (1, 4, 8, 14, 32, 70))], rows)


# --- Errors


def errors() -> str:
    """Every message of an error in the sources, by the exception, with ``…`` for what varies."""
    import pumice

    messages: dict[str, set[str]] = {}
    for path in sorted([*(ROOT / "core" / "pumice").rglob("*.py"), *(ROOT / "plugins").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args:
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                text = _message(node.args[0])
                raised = name in _KINDS or (name in pumice.__all__ and name.endswith("Error"))
                if raised and text and len(re.sub(r"[\W…]", "", text)) > 5:
                    messages.setdefault(_KINDS.get(name, name), set()).add(" ".join(text.split()))
    parts = []
    for name in sorted(messages):
        said = getattr(pumice, name).__doc__ if hasattr(pumice, name) else "An option or an argument of a command."
        parts.append(f"## {name}\n\n{plain(inspect.cleandoc(said or '').split(chr(10) * 2)[0])}\n")
        parts.append("".join(f"- {code(text)}\n" for text in sorted(messages[name], key=str.casefold)))
    return "\n".join(parts)


_KINDS = {"UsageError": "Command line", "ClickException": "Command line", "BadParameter": "Command line"}


def _message(node: ast.expr) -> str | None:
    """Return the text of an expression that builds a message, or None if it has none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _message(node.left), _message(node.right)
        return None if left is None and right is None else (left or "…") + (right or "…")
    return None


GENERATORS: dict[str, Callable[[], str]] = {
    function.__name__: function
    for function in (
        bits,
        catalogue,
        commands,
        configuration,
        errors,
        operations,
        plugin_contract,
        python,
        routes,
        samplers,
        unserved_routes,
    )
}
