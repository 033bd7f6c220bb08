"""The compiled shaders belong to their sources."""

import shutil
import subprocess
from pathlib import Path

import pytest

from pumice.plugin import ELEMENTWISE, BackendError
from pumice_vulkan.shaders import shader
from tools import compile_shaders

ROOT = Path(__file__).parents[3]

DIRECTORIES = [pytest.param(path, id=path.relative_to(ROOT).as_posix()) for path in compile_shaders.DIRECTORIES]


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_every_shader_was_compiled_from_its_source_as_it_is(directory):
    digests = {variant.name: variant.digest(directory) for variant in compile_shaders.variants(directory)}
    compiled = compile_shaders.manifest(directory)["digests"]
    stale = [name for name in digests if digests[name] != compiled.get(name)]
    assert stale == [], "run: python tools/compile_shaders.py"
    assert {path.stem for path in (directory / "spv").glob("*.spv")} == set(digests) == set(compiled)


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_the_compiler_makes_the_same_bytes(directory, tmp_path):
    """With the compiler of the manifest alone: another version chooses other instructions, which are right too."""
    compiler = compile_shaders.find_compiler()
    if compiler is None:
        pytest.skip("glslc is not installed")
    wanted = compile_shaders.manifest(directory)["compiler"]["version"]
    if compile_shaders.version(compiler) != wanted:
        pytest.skip(f"glslc is {compile_shaders.version(compiler)}, the shaders are of {wanted}")
    for variant in compile_shaders.variants(directory):
        target = tmp_path / f"{variant.name}.spv"
        compile_shaders.compile_variant(compiler, directory, variant, target)
        assert target.read_bytes() == (directory / "spv" / target.name).read_bytes(), variant.name


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_the_shaders_are_valid(directory):
    """For the newest environment: the oldest spirv-val in use does not know some extensions, and says so."""
    validator = shutil.which("spirv-val")
    if validator is None:
        pytest.skip("spirv-val is not installed (Debian: spirv-tools)")
    for variant in compile_shaders.variants(directory):
        path = directory / "spv" / f"{variant.name}.spv"
        done = subprocess.run([validator, "--target-env", variant.target, path], capture_output=True, text=True)
        assert done.returncode == 0 or "Invalid extension" in done.stderr or "Invalid capability" in done.stderr, done


def test_a_change_in_an_included_file_is_a_change(tmp_path):
    (tmp_path / "main.comp").write_text('#include "part.glsl"\n')
    variant = compile_shaders.Variant("main", "main.comp")
    (tmp_path / "part.glsl").write_text('#include "deep.glsl"\n')
    (tmp_path / "deep.glsl").write_text("1\n")
    before = variant.digest(tmp_path)
    (tmp_path / "deep.glsl").write_text("2\n")
    assert variant.digest(tmp_path) != before


def test_there_is_a_shader_for_every_operation_element_by_element():
    names = {variant.name for variant in compile_shaders.variants(ROOT / "shaders")}
    kinds = {1: "unary", 2: "binary"}
    assert {f"{kinds[len(each.operands)]}.{name}" for name, each in ELEMENTWISE.items()} == {
        name for name in names if name.split(".")[0] in kinds.values()
    }


def test_shaders_are_found_by_name():
    assert shader("copy") == (ROOT / "shaders" / "spv" / "copy.spv").read_bytes()
    with pytest.raises(BackendError, match="the shader 'nothing' is missing"):
        shader("nothing")
