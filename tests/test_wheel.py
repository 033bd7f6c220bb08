"""Contents of the wheel, built from the checkout."""

import configparser
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tools.compile_kernels import TARGETS

from nightly import variants
from pumice_cpu.isa import current, processor
from tools import build_wheels

ROOT = Path(__file__).parents[1]
SHADERS = "pumice_vulkan/spv/"
DOCS = "pumice/docs/"
VERSION = "1.2.3"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PUMICE_VERSION", VERSION)  # of builds in folders without a history
        return zipfile.ZipFile(build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel"))


def build(source: Path, out: Path, target: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (path,) = out.glob("pumice-*")
    return path


NOT_COPIED = shutil.ignore_patterns(".git", ".venv*", "node_modules", "__pycache__", ".*_cache", ".hypothesis", "build")


@pytest.mark.parametrize("target", variants(["wheel", "sdist"], ["wheel"]))
def test_a_build_in_another_folder_is_the_same_to_the_bit(wheel, target, tmp_path, monkeypatch):
    monkeypatch.setenv("PUMICE_VERSION", VERSION)
    elsewhere = shutil.copytree(ROOT, tmp_path / "elsewhere", ignore=NOT_COPIED, copy_function=shutil.copy)
    for path in elsewhere.rglob("*"):
        os.utime(path, (1e9, 1e9))
        path.chmod(path.stat().st_mode & 0o700)
    first = Path(str(wheel.filename)) if target == "wheel" else build(ROOT, tmp_path / "here", target)
    second = build(elsewhere, tmp_path / "there", target)
    assert hashlib.sha256(first.read_bytes()).digest() == hashlib.sha256(second.read_bytes()).digest()


def test_the_wheel_of_a_source_distribution_is_that_of_the_checkout(wheel, tmp_path, monkeypatch):
    """A source distribution has all parts of the wheel, and its version without Git."""
    with monkeypatch.context() as patch:
        patch.setenv("PUMICE_VERSION", VERSION)
        packed = build(ROOT, tmp_path / "sdist", "sdist")
    with tarfile.open(packed) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (source,) = tmp_path.glob("pumice-*")
    built = build(source, tmp_path / "wheel", "wheel")
    assert built.name == Path(str(wheel.filename)).name
    assert built.read_bytes() == Path(str(wheel.filename)).read_bytes()


def test_every_source_file_is_in_the_wheel_and_no_other(wheel):
    sources = {
        path.relative_to(ROOT / root).as_posix()
        for root in ("core", "plugins")
        for path in (ROOT / root).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packaged = {name for name in wheel.namelist() if ".dist-info/" not in name and not name.startswith((SHADERS, DOCS))}
    assert packaged - {"pumice/registry.yaml"} == sources


def test_the_wheel_has_the_license_the_command_and_the_plugins(wheel):
    names = {name.partition(".dist-info/")[2]: name for name in wheel.namelist()}
    assert wheel.read(names["licenses/LICENSE"]) == (ROOT / "LICENSE").read_bytes()
    points = configparser.ConfigParser()
    points.read_string(wheel.read(names["entry_points.txt"]).decode())
    assert points["console_scripts"]["pumice"] == "pumice.__main__:main"
    packaged = {name.split("/")[0] for name in wheel.namelist()}
    assert {module.split(".")[0] for module in points["pumice"].values()} <= packaged


KERNEL = "elementwise.unary:silu"
RUN_IT = f"""
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
import numpy as np
import pumice_cpu
from pumice_cpu.runtime import OperationTable, ThreadPool
print(pumice_cpu.__file__)
pool, table = ThreadPool(2), OperationTable()
x, y, count = np.linspace(-4, 4, 1000, dtype=np.float32), np.zeros(1000, np.float32), np.ones(1, np.int64)
places = {{"count": count.ctypes.data, "x": x.ctypes.data, "y": y.ctypes.data}}
table.add("{KERNEL}", {{**places, "width": 1000, "p": 0, "q": 0}})
pool.run(table)
np.testing.assert_allclose(y, x / (1 + np.exp(-x)), rtol=1e-5)
"""


def test_a_platform_wheel_runs_without_a_compiler(wheel, tmp_path):
    """With one kernel that is compiled as all are, and linked by this system's compiler in place of Zig's."""
    tag = next((tag for tag in TARGETS if tag.startswith("manylinux") and tag.endswith(processor())), "")
    if sys.platform != "linux" or not tag or not shutil.which("cc"):
        pytest.skip("no C compiler to link with")
    linker = tmp_path / "zig"
    linker.write_text('#!/bin/sh\nshift 3\nexec cc "$@"\n')
    linker.chmod(0o755)
    command = [sys.executable, "-m", "tools.compile_kernels", tag, "--isa", current().name, "--only", KERNEL]
    command += ["--jobs", "1", "--out", str(tmp_path / "kernels")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env={**os.environ, "ZIG": str(linker)})
    built = build_wheels.build(Path(str(wheel.filename)), tag, tmp_path / "kernels" / tag, tmp_path)
    with zipfile.ZipFile(built) as platform:
        platform.extractall(tmp_path / "installed")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    done = subprocess.run([sys.executable, "-c", RUN_IT], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "installed"))


def test_the_wheel_needs_no_compiler(wheel):
    assert str(wheel.filename).endswith("-py3-none-any.whl")
    assert [name for name in wheel.namelist() if name.endswith((".so", ".pyd", ".dylib", ".c", ".cpp", ".pyx"))] == []


def test_the_defaults_are_in_the_wheel(wheel):
    assert wheel.read("pumice/registry.yaml") == (ROOT / "registry.yaml").read_bytes()


def test_the_compiled_shaders_are_in_the_wheel(wheel):
    compiled = {path.name: path.read_bytes() for path in (ROOT / "shaders" / "spv").iterdir()}
    assert compiled
    assert compiled == {
        name.removeprefix(SHADERS): wheel.read(name) for name in wheel.namelist() if name.startswith(SHADERS)
    }
