"""The compiled shaders belong to their sources."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pumice_vulkan.interface import Interface, Parameter, push_constants
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
def test_push_constants_have_the_names_that_sources_give_them(directory):
    compiler = compile_shaders.find_compiler()
    if compiler is None:
        pytest.skip("glslc is not installed")
    entries = {variant.entry: variant for variant in compile_shaders.variants(directory)}
    found = {name: compile_shaders.find_interface(compiler, directory, each) for name, each in entries.items()}
    assert found == compile_shaders.interfaces(directory), "run: python tools/compile_shaders.py"


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_push_constants_lie_where_the_compiled_shaders_have_them(directory):
    """Names are stripped there; the sources' text declares them in this order, and others under conditions."""
    interfaces = compile_shaders.interfaces(directory)
    assert interfaces.keys() == {variant.entry for variant in compile_shaders.variants(directory)}
    for variant in compile_shaders.variants(directory):
        rows = interfaces[variant.entry]
        compiled = push_constants((directory / "spv" / f"{variant.name}.spv").read_bytes())
        assert [list(each.row)[1:] for each in compiled] == [row[1:] for row in rows], variant.name
        source = "".join(path.read_text() for path in compile_shaders.sources(directory / variant.source))
        blocks = re.findall(r"push_constant\)[^{]*{([^}]*)}", source)
        words = [re.findall(r"(\w+)(?:\[\d+\])?[,;]", re.sub(r"//.*", "", block)) for block in blocks]
        assert any(_in_order([name for name, *_ in rows], block) for block in words or [[]]), variant.name


def _in_order(names, declared):
    rest = iter(declared)
    return all(name in rest for name in names)


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
    variant = compile_shaders.Variant("main", "main", "main.comp")
    (tmp_path / "part.glsl").write_text('#include "deep.glsl"\n')
    (tmp_path / "deep.glsl").write_text("1\n")
    before = variant.digest(tmp_path)
    (tmp_path / "deep.glsl").write_text("2\n")
    assert variant.digest(tmp_path) != before


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n": 1, "at": [1, 2]}, "parameters of the shader k: missing: eps"),
        ({"n": 1, "at": [1, 2], "eps": 0, "m": 0}, "parameters of the shader k: unknown: m"),
        ({"n": 1.5, "at": [1, 2], "eps": 0}, "k: n is 1.5, the shader declares uint"),
        ({"n": 1, "at": [1, 2, 3], "eps": 0}, r"k: at is \[1, 2, 3\], the shader declares uint\[2\]"),
        ({"n": 1, "at": 1, "eps": 0}, r"k: at is 1, the shader declares uint\[2\]"),
    ],
)
def test_parameters_that_a_shader_does_not_declare_are_an_error(values, message):
    declared = Interface("k", (Parameter("n", "uint", 0), Parameter("at", "uint", 4, 2), Parameter("eps", "float", 12)))
    with pytest.raises(ValueError, match=message):
        declared.pack(**values)
