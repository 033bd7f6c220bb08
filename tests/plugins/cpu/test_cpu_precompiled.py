"""Kernels that come with the package: found without Numba and LLVM, and emitted for other systems."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import pumice
from pumice.plugin.unstable import KV_TYPES
from pumice.quantize import quantize
from pumice_cpu import backend, precompiled, sources
from pumice_cpu.compiler import compile_one
from pumice_cpu.isa import current
from pumice_cpu.sources import digest, symbol
from tiny_drafts import ALONE
from tiny_encoders import MODELS as ENCODERS
from tiny_models import ATTENTION, EXPERTS, tiny
from tiny_t5 import MODELS as ENCODER_DECODERS
from tiny_zoo import DAILY, FAMILIES
from tools import build_wheels, compile_kernels

ROOT = Path(__file__).parents[3]
NAMES = ["step.run", "step.work", "step.start", "elementwise.unary:silu"]

WITHOUT_A_COMPILER = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
from pathlib import Path
import numpy as np
from pumice.plugin import BackendError
from pumice_cpu import precompiled
precompiled.FOLDER = Path(sys.argv[1])
from pumice_cpu.kernel import load_kernels
from pumice_cpu.runtime import OperationTable, ThreadPool
pool, table = ThreadPool(2), OperationTable()
x, y, count = np.linspace(-4, 4, 1000, dtype=np.float32), np.zeros(1000, np.float32), np.ones(1, np.int64)
places = {"count": count.ctypes.data, "x": x.ctypes.data, "y": y.ctypes.data}
table.add("elementwise.unary:silu", {**places, "width": 1000, "p": 0, "q": 0})
pool.run(table)
np.testing.assert_allclose(y, x / (1 + np.exp(-x)), rtol=1e-5)
try:
    load_kernels(["elementwise.unary:gelu"])
except BackendError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A library as tools/compile_kernels.py makes it, linked by this system's compiler."""
    linker = shutil.which("cc")
    if linker is None or sys.platform != "linux":
        pytest.skip("no C compiler to link with")
    folder = tmp_path_factory.mktemp("precompiled")
    index, objects = {}, []
    for name in NAMES:
        entry = compile_one(name)
        objects.append(folder / f"{symbol(name)}.o")
        objects[-1].write_bytes(entry.code)
        index[name] = entry.parameters
    subprocess.run([linker, "-shared", "-o", folder / f"{current().name}.so", *objects], check=True)
    (folder / f"{current().name}.json").write_text(json.dumps({"sources": digest(), "kernels": index}))
    return folder


def test_kernels_of_the_package_run_without_a_compiler(folder):
    done = subprocess.run([sys.executable, "-c", WITHOUT_A_COMPILER, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    message = r"cpu: the kernel elementwise.unary:gelu did not come with this package.*\[compiler\]'\n"
    assert re.fullmatch(message, done.stdout)


def test_a_compiler_that_cannot_be_imported_is_one_line(tmp_path):
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba" / "__init__.py").write_text("raise ImportError('Numba needs NumPy 2.3 or less')")
    code = """
import sys
from pathlib import Path
from pumice_cpu import precompiled
precompiled.FOLDER = Path(sys.argv[1])
from pumice.cli import main
from pumice.demo import demo_model_path
sys.argv[1:] = ["quantize", str(demo_model_path()), "q.gguf", "Q4_0", "--allow-requantize"]
main()
"""
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "PUMICE_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", code, str(tmp_path / "none")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert re.fullmatch(
        r"error: cpu: the kernel quantizers\.\S+ did not come with this package for \w+, and its compiler, Numba, "
        r"cannot be imported \(Numba needs NumPy 2\.3 or less\): install Numba again, or another version\n",
        done.stderr,
    ), done.stderr
    assert done.returncode == 1
    assert not (tmp_path / "q.gguf").exists()


def test_a_library_of_other_sources_is_left_alone(folder, tmp_path, monkeypatch, caplog):
    name = current().name
    (tmp_path / f"{name}.json").write_text(json.dumps({"sources": "other", "kernels": {"rows.copy": []}}))
    monkeypatch.setattr(precompiled, "FOLDER", tmp_path)
    assert precompiled.find("rows.copy") is None
    assert "was built from other sources" in caplog.text
    monkeypatch.setattr(precompiled, "FOLDER", folder)
    assert precompiled.find("elementwise.unary:silu").parameters == ["count", "x", "y", "width", "p", "q"]
    assert precompiled.find("rows.copy") is None


EMIT = """
import sys
from pumice_cpu.codegen import object_file
from pumice_cpu.compiler import source_of
sys.stdout.buffer.write(object_file(source_of("norms.rms_norm")[1], sys.argv[1])[:20])
"""
ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x01\x00"


@pytest.mark.parametrize(
    ("tag", "isa", "magic"),
    [
        pytest.param("manylinux2014_x86_64", "avx512vnni", ELF + b"\x3e\x00", marks=pytest.mark.nightly),
        ("manylinux2014_aarch64", "neon", ELF + b"\xb7\x00"),
        pytest.param("macosx_11_0_arm64", "neon", b"\xcf\xfa\xed\xfe\x0c\x00\x00\x01", marks=pytest.mark.nightly),
        ("win_amd64", "avx2", b"\x64\x86"),
    ],
)
def test_kernels_are_emitted_for_every_platform(tag, isa, magic):
    target = compile_kernels.TARGETS[tag]
    assert isa in target.isas
    environment = {**os.environ, "PUMICE_SIMD": isa}
    done = subprocess.run([sys.executable, "-c", EMIT, target.triple], capture_output=True, env=environment)
    assert done.stdout.startswith(magic), done.stderr.decode()


UNMEASURED = {"backend": "cpu", "n_ctx": 64, "config": {"speculate": "off"}}  # no step links kernels


@pytest.fixture
def used(monkeypatch):
    """Names of the kernels that models ask for; none is compiled."""
    names = set()
    monkeypatch.setattr(backend, "load_kernels", lambda wanted: names.update(wanted) or {})
    monkeypatch.setattr(backend, "pack", lambda *arguments: None)
    return names


@pytest.mark.parametrize(
    "names", [DAILY, pytest.param(list(FAMILIES), marks=pytest.mark.nightly)], ids=["daily", "all"]
)
def test_the_list_has_what_the_bundled_families_use(tmp_path, used, names):
    models = [FAMILIES[name] for name in names]
    for i, model in enumerate([*models, *(ENCODERS | ENCODER_DECODERS | ALONE).values()]):
        pumice.load(model.write(tmp_path / f"{i}.gguf"), **UNMEASURED).close()
    assert len(used) > 60
    assert used - set(compile_kernels.kernel_names()) == set()


@pytest.mark.parametrize("type", ["Q8_0", "TQ2_0"])
def test_the_list_has_what_quantized_weights_need(tmp_path, used, type):
    layer, sizes = f"{ATTENTION} {EXPERTS}", {"n": 256, "f": 256}
    model = tiny("llama", layer, n_layer=1, dims=sizes, expert_count=4, expert_used_count=2)
    quantize(model.write(tmp_path / "model.gguf"), tmp_path / "quantized.gguf", type)
    for kv_type in KV_TYPES:
        pumice.load(tmp_path / "quantized.gguf", kv_type=kv_type, **UNMEASURED).close()
    assert any(name.startswith("experts.matmul:" if type == "Q8_0" else "linear_rare.matmul_experts:") for name in used)
    assert used - set(compile_kernels.kernel_names()) == set()


LEFT_OUT = """
import os
from pumice_cpu.compiler import source_of
from pumice_cpu.isa import BY_NAME, ENVIRONMENT, ISAS, current
from tools.compile_kernels import is_of_base, kernel_names
def names(isa):
    os.environ[ENVIRONMENT] = isa
    current.cache_clear()
    return set(kernel_names())
for base in {isa.base for isa in ISAS if isa.base}:
    known = names(base)
    for isa in [isa for isa in ISAS if isa.base == base]:
        own = sorted(names(isa.name) - known)
        print(isa.name, len(own), [name for name in own if is_of_base(source_of(name)[1], isa)])
"""


@pytest.mark.nightly
def test_no_kernel_is_left_to_a_base_that_does_not_have_it():
    done = subprocess.run([sys.executable, "-c", LEFT_OUT], capture_output=True, text=True, check=True, cwd=ROOT)
    assert set(done.stdout.splitlines()) == {"avx512bf16 18 []", "avx512vnni 0 []", "avxvnni 0 []"}


def test_the_digest_covers_all_modules_that_kernels_import():
    package = Path(sources.__file__).parent
    found = [file for part in sources.PARTS for file in (package / part, *(package / part).rglob("*.py"))]
    files = [file for file in found if file.is_file()]
    imported = {name for file in files for name in re.findall(r"^from pumice_cpu\.(\w+)", file.read_text(), re.M)}
    assert len(files) > 40
    assert imported - {part.removesuffix(".py") for part in sources.PARTS} == set()


def test_a_platform_wheel_has_kernels_and_needs_no_compiler(tmp_path):
    pure, kernels = tmp_path / "pumice-1.0-py3-none-any.whl", tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "avx2.so").write_bytes(b"code")
    (kernels / "pumice.lib").write_bytes(b"what a linker leaves")
    with zipfile.ZipFile(pure, "w") as wheel:
        wheel.writestr("pumice/__init__.py", "")
        wheel.writestr("pumice-1.0.dist-info/WHEEL", "Root-Is-Purelib: true\nTag: py3-none-any\n")
        asked = "Requires-Dist: numba>=0.60\nRequires-Dist: numpy\nRequires-Dist: numba>=0.60; extra == 'compiler'\n"
        wheel.writestr("pumice-1.0.dist-info/METADATA", asked)
        wheel.writestr("pumice-1.0.dist-info/RECORD", "")
    built = build_wheels.build(pure, "win_amd64", kernels, tmp_path)
    assert built.name == "pumice-1.0-py3-none-win_amd64.whl"
    with zipfile.ZipFile(built) as wheel:
        assert wheel.read("pumice_cpu/precompiled/avx2.so") == b"code"
        assert "pumice_cpu/precompiled/pumice.lib" not in wheel.namelist()
        assert b"Tag: py3-none-win_amd64" in wheel.read("pumice-1.0.dist-info/WHEEL")
        wanted, record = (wheel.read(f"pumice-1.0.dist-info/{name}").decode() for name in ("METADATA", "RECORD"))
        assert wanted.splitlines() == ["Requires-Dist: numpy", "Requires-Dist: numba>=0.60; extra == 'compiler'"]
        assert {line.split(",")[0] for line in record.splitlines()} == set(wheel.namelist())
