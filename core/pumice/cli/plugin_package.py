"""A new plugin: the package of the tutorial with the chosen kinds, under another name."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from pumice.wording import documentation_page

MODULES = {
    "architecture": ("architecture", "operation"),
    "backend": ("backend",),
    "sampler": ("sampler",),
    "proposer": ("proposer",),
    "pre-tokenizer": ("tokenizer",),
    "chat-format": ("chat_format",),
    "command": ("command",),
    "protocol": ("protocol",),
}
"""Modules of each kind."""
_SHOWN = re.compile(r"^`(pumice_example/(\w+)\.py|pyproject\.toml)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def package_files(name: str, kinds: Collection[str]) -> dict[str, str]:
    """Return the files of the plugin ``name``, a distribution's name, by their paths in its folder."""
    pages = [Path(documentation_page(page)).read_text(encoding="utf-8") for page in ("plugins.md", "protocols.md")]
    modules = {"__init__", *(module for kind in kinds for module in MODULES[kind])}
    files = {}
    for path, module, text in _SHOWN.findall("".join(pages)):
        if not module or module in modules:
            files[_renamed(path, name)] = _renamed(_with_hooks(text, kinds) if module == "__init__" else text, name)
    return files


def _with_hooks(text: str, kinds: Collection[str]) -> str:
    """Return the module of the hooks with those of ``kinds`` alone, and the imports that they need."""
    head, *hooks = text.rstrip().split("\n\n\n@hookimpl\n")
    plurals = {f"pumice_register_{kind.replace('-', '_')}s(" for kind in kinds}
    body = "".join(f"\n\n\n@hookimpl\n{hook}" for hook in hooks if any(plural in hook for plural in plurals)) + "\n"
    head = head.replace(head.splitlines()[0], f'"""A Pumice plugin: {", ".join(kinds)}."""')
    contract = re.search(r"^from pumice\.plugin import (.*)$", head, re.MULTILINE)
    assert contract, "the tutorial imports the contract"
    names = [item for item in contract[1].split(", ") if re.search(rf"\b{item}\b", body)]
    head = head.replace(contract[0], f"from pumice.plugin import {', '.join(names)}")
    late, used = re.search(r"\nif TYPE_CHECKING:.*?(?=\npumice_api)", head, re.DOTALL), []
    assert late, "the tutorial imports what only types need under TYPE_CHECKING"
    for line in filter(str.strip, late[0].splitlines()[2:]):
        start, imported = line.split("import ")
        if needed := [item for item in imported.split(", ") if re.search(rf"\b{item}\b", body)]:
            used.append(f"{start}import {', '.join(needed)}")
    if not used:
        head = head.replace(late[0], "").replace("from typing import TYPE_CHECKING\n\n", "")
    else:
        head = head.replace(late[0], "\n".join(["", late[0].splitlines()[1], "\n\n".join(used), ""]))
    return head + body


def _renamed(text: str, name: str) -> str:
    package = name.replace("-", "_")
    short = package.removeprefix("pumice_")
    text = text.replace("pumice-example", name).replace("pumice_example", package)
    return re.sub(r"\bexample\b", short, text)
