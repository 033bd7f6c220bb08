"""A file of every kind of value, as the gguf package writes it."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from pumice.gguf import GGMLType

SCALARS = {
    "uint8": 255,
    "int8": -128,
    "uint16": 65535,
    "int16": -32768,
    "uint32": 2**32 - 1,
    "int32": -(2**31),
    "float32": 0.5,
    "uint64": 2**64 - 1,
    "int64": -(2**63),
    "float64": 0.1,
    "bool": True,
    "string": "日本 🙂",
}


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written") / "written.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(64)
    for kind, value in SCALARS.items():
        getattr(writer, f"add_{kind}")(f"test.{kind}", value)
    writer.add_array("test.strings", ["a", "", "ü", "long " * 100])
    writer.add_array("test.ints", [1, 2, 3])
    writer.add_array("test.floats", [0.5, -1.5])
    writer.add_array("test.bools", [True, False, True])
    writer.add_array("test.nested", [[1, 2], [3]])
    writer.add_tensor("vector", np.arange(5, dtype=np.float32))
    writer.add_tensor("matrix", np.arange(12, dtype=np.float16).reshape(3, 4))
    writer.add_tensor("cube", np.arange(24, dtype=np.int32).reshape(2, 3, 4))
    for type in (GGMLType.Q4_0, GGMLType.BF16, GGMLType.Q8_0):
        blocks = gguf.quants.quantize(np.ones((2, 64), np.float32), type)
        writer.add_tensor(f"blk.0.{type.name}", blocks, raw_dtype=type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
