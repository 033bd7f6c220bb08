"""What the wheel holds, built from the checkout as it is."""

import configparser
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHADERS = "pumice_vulkan/spv/"
DOCS = "pumice/docs/"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = directory.glob("pumice-*.whl")
    return zipfile.ZipFile(path)


def test_the_defaults_are_in_the_wheel(wheel):
    assert wheel.read("pumice/registry.yaml") == (ROOT / "registry.yaml").read_bytes()


def test_the_handbook_is_in_the_wheel(wheel):
    pages = {path.name: path.read_bytes() for path in (ROOT / "docs").rglob("*") if path.is_file()}
    assert pages == {Path(name).name: wheel.read(name) for name in wheel.namelist() if name.startswith(DOCS)}


def test_the_compiled_shaders_are_in_the_wheel(wheel):
    compiled = {path.name: path.read_bytes() for path in (ROOT / "shaders" / "spv").iterdir()}
    assert compiled
    assert compiled == {
        name.removeprefix(SHADERS): wheel.read(name) for name in wheel.namelist() if name.startswith(SHADERS)
    }


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
    assert points["console_scripts"]["pumice"] == "pumice.cli:main"
    packaged = {name.split("/")[0] for name in wheel.namelist()}
    assert {module.split(".")[0] for module in points["pumice"].values()} <= packaged
