"""Files that Pumice writes, read by the gguf package and compared with the files of others."""

import filecmp
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import pytest

from pumice.demo import demo_model_path
from pumice.errors import GGUFError
from pumice.gguf import GGMLType, GGUFFile, TensorInfo, Writer, encode
from pumice.gguf.copy import copy_tensors, encoded_metadata
from pumice.gguf.output import check_output

VALUES = {
    "general.architecture": "llama",
    "general.alignment": 4096,
    "a.bool": True,
    "a.small": 5,
    "a.negative": -5,
    "a.large": 1 << 40,
    "a.float": 0.5,
    "a.text": "héllo",
    "a.texts": ["a", "", "c"],
    "a.numbers": [1, 2, 3],
    "a.array": np.array([1.5, 2.5]),
    "a.bytes": np.array([-1, 1], np.int8),
}


def copy(path: Path, out: Path, **options: object) -> Writer:
    with GGUFFile.open(path) as file:
        tensors = list(file.tensors.values())
        with Writer(out, encoded_metadata(file.metadata), tensors, version=file.version, **options) as writer:
            copy_tensors(writer, tensors)
    return writer


def test_the_gguf_package_reads_values_and_tensors(tmp_path):
    weights = np.arange(64, dtype=np.float32).reshape(2, 32)
    infos = [TensorInfo("a", GGMLType.F32, (2, 32)), TensorInfo("b", GGMLType.F16, (5,))]
    with Writer(tmp_path / "model.gguf", VALUES, infos) as writer:
        writer.write(weights[:1])
        writer.write(weights[1:].tobytes())
        writer.write(np.ones(5, np.float16))
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    for key, value in VALUES.items():
        contents = reader.fields[key].contents()
        assert np.array_equal(contents, value) if isinstance(value, np.ndarray) else contents == value
    types = {key: reader.fields[key].types[-1].name for key in VALUES}
    assert types["a.small"] == "UINT32"
    assert types["a.negative"] == "INT32"
    assert types["a.large"] == "UINT64"
    assert types["a.float"] == "FLOAT32"
    assert types["a.array"] == "FLOAT64"
    assert np.array_equal(reader.tensors[0].data, weights)
    assert reader.tensors[1].data.tolist() == [1] * 5
    assert writer.offsets == [tensor.data_offset for tensor in reader.tensors]
    assert [tensor.name for tensor in reader.tensors] == ["a", "b"]


@pytest.mark.parametrize(
    ("metadata", "infos", "message"),
    [
        ({"k": object()}, [], "cannot hold a value of type object"),
        ({"k": []}, [], "type of an empty array"),
        ({"": 1}, [], "a metadata key has 0 bytes"),
        ({"general.alignment": 24}, [], "not a power of two"),
        ({"general.alignment": 0}, [], "not a power of two"),
        ({}, [TensorInfo("x" * 64, GGMLType.F32, (1,))], "64 bytes, expected 1 to 63"),
        ({}, [TensorInfo("x", GGMLType.F32, (1,))] * 2, "two tensors are named 'x'"),
        ({}, [TensorInfo("x", GGMLType.F32, (1, 0))], "does not fit"),
        ({}, [TensorInfo("x", GGMLType.Q8_0, (31,))], "'x'.*31 is not a whole number of Q8_0 blocks"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_written(tmp_path, metadata, infos, message):
    with pytest.raises(GGUFError, match=message):
        Writer(tmp_path / "m.gguf", metadata, infos)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "name"),
    [(-1, "u8"), (256, "u8"), (True, "u8"), (1, "bool"), (1.5, "i32"), ("1", "i32"), ([1, "a"], "u32[]"), (1, "u32[]")],
)
def test_values_that_do_not_fit_their_type(value, name):
    with pytest.raises(GGUFError, match="is not a value of type"):
        encode(value, name)


def test_a_file_that_is_there_stays_unless_forced(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_text("mine")
    with pytest.raises(GGUFError, match="exists already"), Writer(path, {}, []):
        pass
    assert path.read_text() == "mine"
    path.chmod(0o600)
    with Writer(path, {}, [], force=True):
        pass
    assert GGUFFile.open(path).tensors == {}
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_error_in_between_leaves_nothing(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_text("mine")
    infos = [TensorInfo("x", GGMLType.F32, (4,))]
    with pytest.raises(ZeroDivisionError), Writer(path, {}, infos, force=True) as writer:
        writer.write(np.zeros(4 // 0, np.float32))
    missing = pytest.raises(ValueError, match="12 bytes of tensor 'x' are missing")
    with missing, Writer(path, {}, infos, force=True) as w:
        w.write(np.zeros(1, np.float32))
    with pytest.raises(ValueError, match="only 16 are expected"), Writer(path, {}, infos, force=True) as writer:
        writer.write(np.zeros(5, np.float32))
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]
    assert path.read_text() == "mine"


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL")
def test_a_killed_process_leaves_nothing_under_the_name(tmp_path):
    path = tmp_path / "m.gguf"
    code = f"""
import os, signal
from pumice.gguf import *
with Writer({str(path)!r}, {{}}, [TensorInfo("x", GGMLType.F32, (1 << 20,))]) as writer:
    writer.write(bytes(1 << 21))
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert not path.exists()


def test_a_full_disk_is_known_beforehand(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=100))
    with (
        pytest.raises(GGUFError, match="are needed, but only 100 are free"),
        Writer(tmp_path / "m.gguf", {}, [TensorInfo("x", GGMLType.F32, (400,))]),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["no/such/m.gguf", "folder"])
def test_places_that_cannot_be(tmp_path, place):
    (tmp_path / "folder").mkdir()
    refused = pytest.raises(GGUFError, match=r"the folder .* does not exist|not a regular file")
    with refused, Writer(tmp_path / place, {}, []):
        pass


def test_reference_files_are_written_as_they_are(shared, tmp_path):
    """The order of keys and tensors, types of values, alignment, the version of the format."""
    paths = [*shared.rglob("*.gguf"), demo_model_path()]
    for path in paths:
        out = tmp_path / path.name
        with GGUFFile.open(path) as file:
            entries = {key: file.metadata.encoded(key) for key in file.metadata}
            with Writer(out, entries, list(file.tensors.values()), version=file.version) as writer:
                for tensor in file.tensors.values():
                    writer.write(tensor.data)
        assert filecmp.cmp(path, out, shallow=False), path
        out.unlink()
    assert len(paths) > 30


def test_a_file_that_came_meanwhile_stays(tmp_path):
    path = tmp_path / "m.gguf"
    with pytest.raises(GGUFError, match="exists already"), Writer(path, {}, []):
        path.write_text("mine")
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]
    assert path.read_text() == "mine"


def test_an_output_is_tried_before_the_work_for_it(tmp_path):
    """Permissions do not tell that a file under a temporary name cannot be made, or takes no bytes."""
    with pytest.raises(GGUFError, match=r"cannot be written: file name too long$"):
        check_output(tmp_path / ("n" * 245 + ".gguf"), False)
    code = f"""
import resource, pathlib
from pumice.gguf.output import check_output
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
check_output(pathlib.Path({str(tmp_path / "m.gguf")!r}), False)
"""
    process = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert process.stderr.endswith("m.gguf: cannot be written: file too large\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="everything can be written to")
def test_a_folder_that_cannot_be_written_to(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(GGUFError, match="cannot be written"), Writer(tmp_path / "m.gguf", {}, []):
        pass
