"""Write the binding of Vulkan from Khronos' registry: ``python tools/vulkan_binding.py [vk.xml]``.

The binding has what the modules of ``pumice_vulkan/device/native`` name: functions, structures and those within them,
and constants. The registry is ``/usr/share/vulkan/registry/vk.xml`` by default (Debian: libvulkan-dev).
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "plugins" / "pumice_vulkan" / "device" / "native"
TARGET = FOLDER / "binding.py"
REGISTRY = Path("/usr/share/vulkan/registry/vk.xml")

C_TYPES = {
    "char": "c_char",
    "double": "c_double",
    "float": "c_float",
    "int": "c_int",
    "int32_t": "c_int32",
    "int64_t": "c_int64",
    "size_t": "c_size_t",
    "uint8_t": "c_uint8",
    "uint16_t": "c_uint16",
    "uint32_t": "c_uint32",
    "uint64_t": "c_uint64",
}
POINTER, TEXT = "c_void_p", "c_char_p"
PYTHON_TYPES = {"c_float": "float", "c_double": "float", POINTER: "int | None", TEXT: "bytes | None"}
ALIASES = {
    "c_char_p": "Text",
    "c_float": "Float",
    "c_int32": "Int32",
    "c_size_t": "Size",
    "c_uint8": "UInt8",
    "c_uint32": "UInt32",
    "c_uint64": "UInt64",
    "c_void_p": "Pointer",
}
"""Annotations of fields in device/native/structure.py."""
WIDE = (POINTER, "c_uint64", "c_size_t")
UNCONVERTED = ("vkCmd", "vkQueueSubmit", "vkResetFences", "vkWaitForFences", "vkGetFenceStatus", "vkSignalSemaphore")
"""Functions of recording and of each step: a conversion of arguments would take half of the time of such a call."""
WIDTH = 120  # columns of a line


@dataclass
class Member:
    """A member of a structure, or an argument of a function."""

    name: str
    type: str  # Vulkan's or C's
    pointers: int  # asterisks
    lengths: list[str]
    structure_type: str | None

    @classmethod
    def of(cls, element: ET.Element) -> Member:
        written = "".join(element.itertext())
        comment = element.find("comment")
        if comment is not None:
            written = written.replace("".join(comment.itertext()), "")
        names = re.findall(r"\[(\w+)\]", written)
        return cls(text(element, "name"), text(element, "type"), written.count("*"), names, element.get("values"))


@dataclass
class Registry:
    """The parts of a registry that the binding may need, by name."""

    path: Path
    version: str = ""
    types: dict[str, ET.Element] = field(default_factory=dict)
    structures: dict[str, list[Member]] = field(default_factory=dict)
    commands: dict[str, tuple[str, list[Member]]] = field(default_factory=dict)
    constants: dict[str, int] = field(default_factory=dict)
    results: dict[int, str] = field(default_factory=dict)
    core: set[str] = field(default_factory=set)  # functions that a loader exports

    def __post_init__(self) -> None:
        root = ET.parse(self.path).getroot()
        for element in root.iterfind("types/type"):
            if is_vulkan(element):
                self._type(element)
        for element in root.iterfind("commands/command"):
            if is_vulkan(element) and "alias" not in element.attrib:
                proto = element.find("proto")
                assert proto is not None
                members = [Member.of(item) for item in element.iterfind("param") if is_vulkan(item)]
                self.commands[text(proto, "name")] = text(proto, "type"), members
        aliases: dict[str, str] = {}
        for group in root.iterfind("enums"):
            for item in group.iterfind("enum"):
                self._constant(item, aliases, group.get("name", ""))
        for feature in (*root.iterfind("feature"), *root.iterfind("extensions/extension")):
            number = int(feature.get("number", "0")) if feature.tag == "extension" else 0
            for item in feature.iterfind("require/enum"):
                self._constant(item, aliases, item.get("extends", ""), number)
            if feature.tag == "feature":
                self.core |= {item.get("name", "") for item in feature.iterfind("require/command")}
        for alias, name in aliases.items():
            if name in self.constants:
                self.constants[alias] = self.constants[name]

    def _type(self, element: ET.Element) -> None:
        name = element.get("name") or text(element, "name") or text(element, "proto/name")
        self.types[name] = element
        if name == "VK_HEADER_VERSION":
            patch = "".join(element.itertext()).split()[-1]
            self.version = f"{self.version}.{patch}"
        elif name == "VK_HEADER_VERSION_COMPLETE":
            major, minor = re.findall(r"\((?:\d, )?(\d), (\d)", "".join(element.itertext()))[0]
            self.version = f"{major}.{minor}{self.version}"
        elif element.get("category") in ("struct", "union"):
            self.structures[name] = [Member.of(item) for item in element.iterfind("member") if is_vulkan(item)]

    def _constant(self, item: ET.Element, aliases: dict[str, str], group: str, extension: int = 0) -> None:
        name = item.get("name", "")
        if not is_vulkan(item):
            return
        if "alias" in item.attrib:
            aliases[name] = item.get("alias", "")
            return
        if "value" in item.attrib:
            written = item.get("value", "")
            if not re.fullmatch(r"-?(0x[0-9A-Fa-f]+|\d+)", written):
                return  # a text, a float or an expression
            value = int(written, 0)
        elif "bitpos" in item.attrib:
            value = 1 << int(item.get("bitpos", ""))
        elif "offset" in item.attrib:
            block = int(item.get("extnumber", extension)) - 1
            value = 1_000_000_000 + 1000 * block + int(item.get("offset", ""))
            value = -value if item.get("dir") == "-" else value
        else:
            return
        self.constants[name] = value
        if group == "VkResult" and value < 0 and not extension:
            self.results.setdefault(value, name)

    def c_type(self, member: Member) -> str:
        """Return the type of ctypes of a member or an argument."""
        if member.pointers:
            return TEXT if member.type == "char" and member.pointers == 1 else POINTER
        base = self.plain(member.type)
        for length in reversed(member.lengths):
            base = f"{base} * {length if length.isdecimal() else self.constants[length]}"
        return base

    def plain(self, name: str) -> str:
        if name in C_TYPES:
            return C_TYPES[name]
        if name in self.structures:
            return name
        category = self.types[name].get("category")
        if category == "handle":
            return POINTER if "NON_DISPATCHABLE" not in "".join(self.types[name].itertext()) else "c_uint64"
        if category == "funcpointer":
            return POINTER
        if category == "enum":
            return "c_int32"
        return self.plain(text(self.types[name], "type"))  # a flag, or another name of a number


def is_vulkan(element: ET.Element) -> bool:
    return "vulkan" in element.get("api", "vulkan").split(",")


def text(element: ET.Element, name: str) -> str:
    return (element.findtext(name) or "").strip()


def python_type(c_type: str) -> str:
    if " * " in c_type:
        base = c_type.partition(" * ")[0]
        return "bytes" if base == "c_char" else f"Array[{base}]"
    return PYTHON_TYPES.get(c_type, c_type if c_type.startswith("Vk") else "int")


def field_type(c_type: str) -> str:
    """Return the annotation of a structure's field: an alias of structure.py, or another structure."""
    length = c_type.partition(" * ")[2]
    return f"Annotated[{python_type(c_type)}, {length}]" if length else ALIASES.get(c_type, c_type)


def named(folder: Path) -> set[str]:
    """Return all names of Vulkan in the modules of a folder."""
    modules = [path for path in folder.glob("*.py") if path.name != TARGET.name]
    return {name for path in modules for name in re.findall(r"\b(?:vk|Vk|VK_)\w+", path.read_text())}


def needed(registry: Registry, names: Iterable[str]) -> list[str]:
    """Return the structures that are named, each after those within it."""
    ordered: dict[str, None] = {}

    def add(name: str) -> None:
        for member in registry.structures[name]:
            if not member.pointers and member.type in registry.structures:
                add(member.type)
        ordered.setdefault(name)

    for name in sorted(names):
        if name in registry.structures:
            add(name)
    return list(ordered)


def structure(registry: Registry, name: str) -> Iterator[str]:
    fields = [(member.name, registry.c_type(member), member) for member in registry.structures[name]]
    types = [member.structure_type for _, _, member in fields if member.structure_type]
    yield f"\n\nclass {name}(Structure):"
    if types:
        yield f"    TYPE = {registry.constants[types[0] or '']}"
    for member_name, c_type, _ in fields:
        yield f"    {member_name}: {field_type(c_type)} = ZERO"


def signature(name: str, result: str, arguments: str) -> str:
    line = f'    "{name}": ({result}, {arguments}),'
    if len(line) <= WIDTH:
        return line
    return f'    "{name}": (\n        {result},\n        {arguments},\n    ),'


def function(registry: Registry, name: str) -> tuple[str, str]:
    """Return the types of ctypes of a function's result and of its arguments."""
    result, members = registry.commands[name]
    types = ", ".join(argument(registry, member) for member in members)
    return "None" if result == "void" else registry.plain(result), f"({types}{',' if len(members) == 1 else ''})"


def argument(registry: Registry, member: Member) -> str:
    return POINTER if member.lengths else registry.c_type(member)


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that puts numbers within names in order."""
    return [(int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", name)]


def annotation(registry: Registry, name: str) -> str:
    result, members = registry.commands[name]
    types = []
    for member in members:
        c_type = argument(registry, member)
        is_pointer = c_type == POINTER and (member.pointers or member.lengths)
        if name.startswith(UNCONVERTED):  # numbers of 32 bits are passed as they are, all else has to know its size
            types.append("Passed" if is_pointer else c_type if c_type in WIDE else "int")
        else:
            types.append("Pointee" if is_pointer else "int" if c_type == POINTER else python_type(c_type))
    returned = "None" if result == "void" else python_type(registry.plain(result))
    return f"Callable[[{', '.join(types)}], {returned}]"


def binding(registry: Registry, names: set[str]) -> str:
    """Return the binding of the named functions and types. Raises KeyError for a name that the registry lacks."""
    functions = sorted(names & registry.commands.keys())
    extensions = [name for name in functions if name not in registry.core]
    lines = [
        f'"""Vulkan {registry.version}, from Khronos\' registry; written by tools/vulkan_binding.py."""',
        "",
        "from collections.abc import Callable",
        "from ctypes import Array",
    ]
    body = "\n".join(line for name in needed(registry, names) for line in structure(registry, name))
    signatures = {name: function(registry, name) for name in functions}
    used = sorted(set(re.findall(r"\bc_\w+", body + repr(signatures))), key=natural)
    lines[-1] = f"from ctypes import {', '.join(['Array', *used])}"
    aliases = {*re.findall(r": (\w+) = ZERO", body)} & {*ALIASES.values()}
    imported = ["ZERO", *sorted({*aliases, "Passed", "Pointee", "Structure"}, key=natural), "define"]
    lines += ["from typing import Annotated", ""]
    lines += ["from pumice_vulkan.device.native.structure import (", *(f"    {name}," for name in imported), ")", ""]
    lines += [f"{name} = {registry.constants[name]}" for name in sorted(names & registry.constants.keys())]
    lines += ["", "RESULTS = {"]
    lines += [f'    {value}: "{name}",' for value, name in sorted(registry.results.items(), reverse=True)]
    lines += ["}", '"""Names of errors, by the code that functions return."""', body, "", "", "define(globals())", ""]
    lines += ["", "class Functions:", '    """The functions of ``SIGNATURES``."""', ""]
    lines += [f"    {name}: {annotation(registry, name)}" for name in functions]
    lines += ["", "", "SIGNATURES: dict[str, tuple[type | None, tuple[type, ...]]] = {"]
    lines += [signature(name, *signatures[name]) for name in functions]
    lines += ["}", '"""Result and arguments of each function."""', ""]
    lines += [f"EXTENSIONS = {sorted(extensions)!r}".replace("'", '"')]
    lines += ['"""Functions that the loader does not export, asked for by name."""', "", "UNCONVERTED = ("]
    lines += [f'    "{name}",' for name in functions if name.startswith(UNCONVERTED)]
    lines += [
        ")",
        '"""Functions called with numbers of 32 bits and objects of ctypes only, which need no conversion."""',
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    registry = Registry(Path(sys.argv[1]) if len(sys.argv) > 1 else REGISTRY)
    TARGET.write_text(binding(registry, named(FOLDER)))


if __name__ == "__main__":
    main()
