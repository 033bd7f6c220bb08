"""Write the software bill of materials (CycloneDX 1.6) of a release: ``python -m tools.sbom FILE``.

The bill names Pumice's own parts that are not Python (shaders, the demo model), the npm packages whose code is in the
server's page, and every Python package that `pumice[server]` requires, with the versions and hashes of
``.ci/locks`` and the licences that the installed packages state.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from cyclonedx.contrib.hash.factories import HashTypeFactory
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from tools.lock import LOCKS, ROOT
from tools.version import version

LOCK = LOCKS / "image.txt"
PIN = re.compile(r"^([\w.-]+)==([^\s;]+)[^\n]*\\\n((?:    --hash=.*\n?)+)", re.MULTILINE)


def bill() -> Bom:
    """Return the bill of the current checkout."""
    project, release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"], version()
    own = Component(
        name="pumice",
        version=release,
        type=ComponentType.APPLICATION,
        licenses=[LicenseFactory().make_from_string(project["license"])],
        purl=PackageURL("pypi", name="pumice", version=release),
    )
    bom = Bom(components=[*_files(own), *_npm_packages(), *_python_packages()])
    bom.metadata.component = own
    bom.register_dependency(own, bom.components)
    return bom


def _files(own: Component) -> Iterator[Component]:
    """Yield compiled shaders and the demo models, built from the sources next to them under Pumice's licence."""
    for path in [*sorted((ROOT / "shaders" / "spv").iterdir()), *sorted((ROOT / "core/pumice/models").rglob("*.gguf"))]:
        digest = HashTypeFactory().from_composite_str(f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}")
        name = path.relative_to(ROOT).as_posix()
        yield Component(name=name, type=ComponentType.FILE, bom_ref=name, hashes=[digest], licenses=own.licenses)


def bundled_packages() -> list[tuple[str, str]]:
    """Return the names and licences of the npm packages in the page, as recorded by its build."""
    text = (ROOT / "plugins" / "pumice_server" / "page" / "licences.txt").read_text()
    return re.findall(r"^(\S+) \d\S*, (\S+)$", text, re.MULTILINE)


def _npm_packages() -> Iterator[Component]:
    locked = json.loads((ROOT / "page" / "package-lock.json").read_text())["packages"]
    for name, licence in bundled_packages():
        version = locked[f"node_modules/{name}"]["version"]
        group, _, short = name.rpartition("/")
        yield Component(
            name=short,
            group=group or None,
            version=version,
            type=ComponentType.LIBRARY,
            bom_ref=f"npm:{name}",
            licenses=[LicenseFactory().make_from_string(licence)],
            purl=PackageURL("npm", group or None, short, version),
        )


def _python_packages() -> Iterator[Component]:
    for name, pinned, hashes in PIN.findall(LOCK.read_text()):
        yield Component(
            name=name,
            version=pinned,
            type=ComponentType.LIBRARY,
            bom_ref=f"pypi:{name}@{pinned}",
            hashes=[HashTypeFactory().from_composite_str(text) for text in re.findall(r"sha256:[0-9a-f]{64}", hashes)],
            licenses=_licences(name),
            purl=PackageURL("pypi", name=name, version=pinned),
        )


def _licences(package: str) -> list[License]:
    """Return the licence stated by an installed package: an SPDX expression, a text, or classifiers."""
    try:
        stated = metadata.metadata(package)
    except metadata.PackageNotFoundError:  # a package for another system
        return []
    text = stated.get("License-Expression") or stated.get("License") or ""
    if not text or text == "UNKNOWN" or "\n" in text:
        classifiers = [line for line in stated.get_all("Classifier") or () if line.startswith("License ::")]
        text = " OR ".join(line.rpartition(" :: ")[2] for line in classifiers)
    return [LicenseFactory().make_from_string(text)] if text else []


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m tools.sbom FILE", file=sys.stderr)
        return 2
    outputter = make_outputter(bill(), OutputFormat.JSON, SchemaVersion.V1_6)
    Path(arguments[0]).write_text(outputter.output_as_string(indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
