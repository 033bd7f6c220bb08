"""Generated text of the documentation: commands, signatures, routes, settings, models, error messages.

A page of docs/ marks its place with ``<!-- generated: NAME -->``; `fill` inserts the Markdown of the function ``NAME``
when the site is built. Generated text is not stored in the repository.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

if TYPE_CHECKING:
    from pumice.options import Option

ROOT = Path(__file__).resolve().parents[2]
_PLACE = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)


def fill(page: str, text: str) -> str:
    """Return the page with generated parts; ``index`` also gets the navigation, in the order of its links.

    Raises KeyError for an unknown generator.
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
    """Return text as inline code, escaped for tables."""
    shown = str(text).replace("|", r"\|")
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"


def plain(text: str) -> str:
    """Return plain text of help or docstrings with Markdown's characters escaped."""
    text = re.sub(r"``(.+?)``", r"`\1`", text)
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        piece.replace("|", r"\|") if i % 2 else re.sub(r"([|*<>\[\]_$])", r"\\\1", piece)
        for i, piece in enumerate(pieces)
    )


# --- Command line


def commands() -> str:
    """Return every command with its usage, help and options."""
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
    """Yield paragraphs; those marked for click as unwrapped (``\\b``) become blocks of text."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            yield f"```text\n{paragraph.removeprefix(chr(8)).strip(chr(10))}\n```\n"
        else:
            yield plain(paragraph) + "\n"


def llama_cli_options() -> str:
    """Return llama-cli's options that ``run`` and ``chat`` refuse, and those that they leave out."""
    from pumice.cli.llama_options import OPTIONS

    refused = {name: reason for options in OPTIONS.values() for name, reason in options.refused.items()}
    left_out = OPTIONS["run"]
    subjects = ((subject, names) for names, subject in _by_reason(left_out.subjects))
    return (
        f"**Errors** say what to do instead:\n\n{table(['option', 'instead'], _by_reason(refused))}\n"
        "**Left out with a warning** that says why:\n\n"
        f"{table(['option', 'reason'], _by_reason(left_out.undone))}\n"
        "**Left out with a warning**, since texts are the same without them:\n\n"
        f"{table(['subject', 'options'], subjects)}"
    )


def _by_reason(reasons: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the names that have the same reason, and the reason."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(code(name))
    return [(", ".join(group), plain(reason)) for reason, group in names.items()]


# --- Python


def _directives(lines: Iterable[str]) -> str:
    return "```{eval-rst}\n" + "\n".join(lines) + "\n```\n"


def _automatic(kind: str, name: str, **options: str) -> str:
    shown = (f"   :{option.replace('_', '-')}: {value}".rstrip() for option, value in options.items())
    return _directives([f".. {kind}:: {name}", *shown])


def python() -> str:
    """Return the public interface: the names in ``pumice.__all__``, in the order of use."""
    import pumice

    functions = [name for name in pumice.__all__ if inspect.isfunction(getattr(pumice, name))]
    classes = [name for name in pumice.__all__ if inspect.isclass(getattr(pumice, name))]
    errors = [name for name in classes if name.endswith("Error")]
    values = [name for name in classes if name not in {*errors, "Model"}]
    subjects = {"Functions": functions, "Models": ["Model"], "Results and messages": values, "Exceptions": errors}
    shown = [(subject, ", ".join(map(code, names))) for subject, names in subjects.items()]
    with pumice.load() as model:  # whose attributes are among its names
        shown.append(("A model", ", ".join(map(code, dir(model)))))
    parts = ["## All names\n", table(["subject", "names"], shown)]
    parts += ["## Loading\n", *(_automatic("autofunction", f"pumice.{name}") for name in functions)]
    parts += ["## Models\n", _automatic("autoclass", "pumice.Model", members="", inherited_members="")]
    components = ["cache.PromptCache", "media.Media", "speech.Speech", "template.Template"]
    parts += [_automatic("autoclass", f"pumice.frontend.{name}", members="") for name in components]
    parts += ["## Results and messages\n"]
    parts += [_automatic("autoclass", f"pumice.{name}", members="", inherited_members="tuple") for name in values]
    parts += ["## Exceptions\n"]
    parts += [_automatic("autoexception", f"pumice.{name}", show_inheritance="") for name in errors]
    return "\n".join(parts)


def plugin_contract() -> str:
    """Return the promised tier of the interface for plugins."""
    return _contract("pumice.plugin")


def unstable_contract() -> str:
    """Return the tier of the interface for plugins that may change in a minor version."""
    return _contract("pumice.plugin.unstable")


def _contract(module: str) -> str:
    contract = importlib.import_module(module)
    objects = {name: getattr(contract, name) for name in contract.__all__}
    classes = [name for name, thing in objects.items() if inspect.isclass(thing) and not issubclass(thing, Exception)]
    functions = [name for name, thing in objects.items() if inspect.isroutine(thing)]
    parts = ["### Classes\n", *(_automatic("autoclass", f"{module}.{name}", members="") for name in classes)]
    parts += ["### Functions\n", *(_automatic("autofunction", f"{module}.{name}") for name in functions)]
    return "\n".join(parts)


def operations() -> str:
    """Return the operations of a graph with their formulas."""
    from pumice.graph import OPERATIONS

    rows = []
    for name, operation in sorted(OPERATIONS.items()):
        rule = getattr(operation, "rule", None) or operation
        rows.append((code(name), plain(" ".join((inspect.getdoc(rule) or "").split("\n\n")[0].split()))))
    return table(["operation", "meaning"], rows)


# --- Server


def endpoints() -> str:
    """Every endpoint by protocol: its paths, what it does, its body, and the scope that a key needs."""
    from pumice_server.application import operations
    from pumice_server.endpoints.openapi import titles
    from pumice_server.settings import Settings

    parts = []
    listed = operations(Settings(predict_route="/predict"))
    for protocol in titles(listed):
        cells = []
        for operation in listed:
            if operation.protocol == protocol:
                paths = ", ".join(code(path.replace(":path}", "}")) for path in operation.paths)
                query = "".join(f" {code(f'?{name}=')} {text}" for name, text in operation.query.items())
                links = (_kind_link(kind) for kind in (operation.body, operation.answer, operation.part))
                scope = operation.scope or "none"
                cells.append((f"{operation.method} {paths}", operation.summary + query, *links, scope))
        header = ["endpoint", "purpose", "body", "answer", "part of a stream", "scope"]
        parts.append(f"### {protocol}\n\n{table(header, cells)}")
    return "\n".join(parts)


def _kind_link(kind: Any) -> str:
    """Return a link to the table of a kind of body or answer."""
    from pumice_server.endpoints.reference import title_of
    from pumice_server.http.schemas import structs_of

    if kind is bytes:
        return "a file"
    return "-" if kind is None else f"[{title_of(kind)}](#{next(structs_of(kind)).__name__.lower()})"


def body_fields() -> str:
    """The fields of every body and answer, with types, bounds, defaults and meanings."""
    from pumice_server.application import operations
    from pumice_server.endpoints.reference import base_of, kinds_of, rows, summary_of
    from pumice_server.settings import Settings

    parts = []
    for kind in kinds_of(operations(Settings(predict_route="/predict"))):
        base = base_of(kind)
        also = f" Also the fields of [{base.__name__}](#{base.__name__.lower()})." if base else ""
        parts.append(f"### {kind.__name__}\n\n{summary_of(kind)}{also}\n")
        fields = [
            (code(row.name), plain(row.type), row.default, row.description.replace("|", r"\|")) for row in rows(kind)
        ]
        if fields:
            parts.append(table(["field", "type", "default", "meaning"], fields))
    return "\n".join(parts)


# --- Configuration


def configuration() -> str:
    """Return the configuration keys by group."""
    from pumice.options import ENGINE

    return _options(ENGINE.values())


def options() -> str:
    """Return the options of a request except the parameters of samplers, by group."""
    from pumice.options import GENERATE, REQUEST, SAMPLING

    return _options(option for name, option in {**REQUEST, **GENERATE}.items() if name not in SAMPLING)


def schema_keywords() -> str:
    """Return the keywords of JSON Schema with their support, and the formats that are enforced."""
    from pumice.grammar.keywords import FORMATS, KEYWORDS

    rows = [(code(name), support.value, remark) for name, (support, remark) in KEYWORDS.items()]
    formats = ", ".join(map(code, sorted(FORMATS)))
    return f"{table(['keyword', 'support', 'remark'], rows)}\nEnforced formats: {formats}.\n"


def chat_options() -> str:
    """Return the additional options of a chat by group."""
    from pumice.options import TEMPLATE

    return _options(TEMPLATE.values())


def samplers() -> str:
    """The bundled samplers in the order of the default chain, with their parameters."""
    from pumice.options import ENGINE, SAMPLING
    from pumice_samplers import SAMPLERS

    order = ENGINE["samplers"].default
    rows = [
        (code(name), *_row(SAMPLING[parameter.name]))
        for name in order
        for parameter in dataclasses.fields(SAMPLERS[name])
    ]
    return table(["sampler", "parameter", "type", "default", "meaning"], rows)


def _options(options: Iterable[Option]) -> str:
    groups: dict[str, list[tuple[str, ...]]] = {}
    for option in options:
        groups.setdefault(option.group, []).append(_row(option))
    header = ["option", "type", "default", "meaning"]
    return "\n".join(f"**{name}**\n\n{table(header, rows)}" for name, rows in groups.items())


def _row(option: Option) -> tuple[str, ...]:
    limits = f", {option.limits_text}" if option.limits else ""
    return code(option.name), code(option.type_text) + limits, code(repr(option.default)), plain(option.meaning)


# --- Models


def catalogue() -> str:
    """Return the catalogue: short names, sizes, models, the recommended sampling parameters, and purposes."""
    records = yaml.safe_load((ROOT / "core" / "pumice" / "hub" / "catalogue.yaml").read_text())
    rows = []
    for name, record in records.items():
        sampling = ", ".join(f"{key} {value}" for key, value in record.get("sampling", {}).items())
        purposes = ", ".join(record.get("suits", []))
        rows.append((code(name), str(record.get("gb", "-")), code(record["model"]), sampling or "-", purposes or "-"))
    return table(["name", "GB", "model", "sampling", "suits"], rows)


def bits() -> str:
    """Return the bits per weight of each type, and GB for a billion parameters."""
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
    """Return every error message in the sources by exception, with ``…`` for variable parts."""
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
    """Return the text of an expression that builds a message, or None if it contains none."""
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
        body_fields,
        catalogue,
        chat_options,
        schema_keywords,
        commands,
        configuration,
        endpoints,
        errors,
        llama_cli_options,
        operations,
        options,
        plugin_contract,
        unstable_contract,
        python,
        samplers,
    )
}
