"""Lock the packages that CI and the image install: ``python -m tools.lock [--upgrade]``, or ``make lock``.

Each file of ``.ci/locks`` pins every package that some of Pumice's extras need, dependencies included, for all
supported systems and Python versions, with the hashes that pip checks (``pip install --require-hashes``). The resolver
is uv (``pip install uv``). Packages keep their versions unless ``--upgrade`` is given.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ROOT / ".ci" / "locks"
OLDEST = "3.11"  # the Python version from which on the locks hold
HEADER = "# Made by `make lock` from pyproject.toml and tools/lock.py; pip checks every hash.\n"


@dataclass(frozen=True)
class Lock:
    """One lock file.

    Args:
        extras: optional dependencies of Pumice beside its required ones; None locks ``further`` alone.
        further: requirements that are no dependency of Pumice, as build tools.
        without: packages of the extras that a script builds itself.
        within: the lock whose versions it takes; None for an environment with versions of its own.
    """

    extras: tuple[str, ...] | None = ()
    further: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    within: str | None = "ray.txt"


TESTS = ("hypothesis>=6.100", "pytest>=8.0", "pytest-xdist>=3.6")
BUILD_KP = ("cmake", "numpy<2", "pybind11<3", "setuptools<80", "wheel")
FILES = {  # each is resolved after the one that it is within
    "ray.txt": Lock(extras=("dev", "ray", "parquet"), within=None),
    "dev.txt": Lock(extras=("dev",)),
    "run.txt": Lock(),
    "build.txt": Lock(extras=None, further=("hatchling>=1.26",)),
    "image.txt": Lock(extras=("server",)),
    "docs.txt": Lock(extras=("server",), further=("furo>=2025.12", "myst-parser>=5", "sphinx>=9")),
    "wheels.txt": Lock(extras=None, further=("ziglang",)),
    "audit.txt": Lock(extras=None, further=("pip-audit",), within=None),
    "fuzz.txt": Lock(extras=None, further=("atheris==3.0.*",), within=None),
    "kompute.txt": Lock(extras=("kompute",), further=(*TESTS, *BUILD_KP), without=("kp",), within=None),
    "kp.txt": Lock(extras=None, further=BUILD_KP, within="kompute.txt"),
}


def requirements(lock: Lock) -> list[str]:
    """Return the requirements that a lock resolves, as pyproject.toml states them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    names = [] if lock.extras is None else list(lock.extras)
    stated = [] if lock.extras is None else list(project["dependencies"])
    for extra in names:
        for requirement in optional[extra]:
            own = re.fullmatch(r"pumice\[(.*)\]", requirement)
            if own:
                names.extend(name.strip() for name in own[1].split(",") if name.strip() not in names)
            else:
                stated.append(requirement)
    return [*(text for text in stated if _name(text) not in lock.without), *lock.further]


def _name(requirement: str) -> str:
    match = re.match(r"[\w.-]+", requirement)
    assert match, requirement
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def resolve(name: str, upgrade: bool) -> None:
    """Write a lock file, whose pins are kept where they still fit."""
    lock, target = FILES[name], LOCKS / name
    command = ["uv", "pip", "compile", "-", "--quiet", "--universal", "--generate-hashes", "--no-emit-index-url"]
    command += ["--no-header", "--no-annotate", "--no-config", "--python-version", OLDEST, "-o", str(target)]
    command += ["--constraint", str(LOCKS / lock.within)] if lock.within else []
    command += ["--upgrade"] if upgrade else []
    subprocess.run(command, input="\n".join(requirements(lock)), text=True, check=True)
    target.write_text(HEADER + target.read_text().removeprefix(HEADER))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest version of every package")
    upgrade = parser.parse_args(arguments).upgrade
    LOCKS.mkdir(exist_ok=True)
    for name in FILES:
        resolve(name, upgrade)
    return 0


if __name__ == "__main__":
    sys.exit(main())
