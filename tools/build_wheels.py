"""Build platform wheels, the pure wheel plus compiled kernels: ``python -m tools.build_wheels PURE.whl [TAG ...]``.

``tools/compile_kernels.py`` compiles the kernels of a tag first. Platform wheels do not depend on Numba, which only
other kernels need: ``pip install 'pumice[compiler]'``.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INSIDE = "pumice_cpu/precompiled"
COMPILER = "numba"
DATE = (2020, 2, 2, 0, 0, 0)  # hatchling's date, as in the pure wheel
UNIX = 3  # operating system in a ZIP entry
KEPT = (".so", ".dylib", ".dll", ".json")


def build(pure: Path, tag: str, kernels: Path, out: Path) -> Path:
    """Write a platform's wheel and return its path. ``kernels`` is the folder with its libraries and indexes."""
    chosen = [path for path in sorted(kernels.iterdir()) if path.suffix in KEPT]  # a linker leaves other files, too
    added = {f"{INSIDE}/{path.name}": path.read_bytes() for path in chosen}
    if not added:
        raise FileNotFoundError(f"{kernels} is empty; run python -m tools.compile_kernels {tag}")
    target = out / pure.name.replace("-py3-none-any", f"-py3-none-{tag}")
    rows = []
    with zipfile.ZipFile(pure) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        record = next(name for name in source.namelist() if name.endswith(".dist-info/RECORD"))
        contents = {name: source.read(name) for name in source.namelist() if name != record}
        for name, data in {**contents, **added}.items():
            data = _changed(name, data, tag)
            wheel.writestr(_entry(name), data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(data)}")
        wheel.writestr(_entry(record), "\n".join([*rows, f"{record},,"]) + "\n")
    return target


def _entry(name: str) -> zipfile.ZipInfo:
    """Return an entry without the build's time and machine, so that equal contents give equal wheels."""
    entry = zipfile.ZipInfo(name, DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = UNIX
    entry.external_attr = 0o644 << 16
    return entry


def _changed(name: str, data: bytes, tag: str) -> bytes:
    """Return metadata with the platform's tag and without the dependency on the compiler."""
    if name.endswith(".dist-info/WHEEL"):
        text = data.decode().replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
        return re.sub(r"^Tag: .*$", f"Tag: py3-none-{tag}", text, flags=re.MULTILINE).encode()
    if name.endswith(".dist-info/METADATA"):
        return re.sub(rf"^Requires-Dist: {COMPILER}[^;\n]*\n", "", data.decode(), flags=re.MULTILINE).encode()
    return data


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path, help="the pure wheel")
    parser.add_argument("tags", nargs="*", help="platform tags (default: all with compiled kernels)")
    parser.add_argument("--kernels", type=Path, default=ROOT / "build" / "kernels")
    arguments = parser.parse_args()
    for tag in arguments.tags or sorted(path.name for path in arguments.kernels.iterdir()):
        wheel = build(arguments.wheel, tag, arguments.kernels / tag, arguments.wheel.parent)
        print(f"{wheel}: {wheel.stat().st_size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
