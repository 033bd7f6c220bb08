"""Make tests/fixtures/quantized_rows.json: digests of what ggml makes of the rows of ``quantizer_rows.py``.

    python tests/make_fixtures/quantized_rows.py path/to/libggml-base.so

The library must be built without fused multiplication and addition (``-ffp-contract=off``, or for plain x86-64).
Rows for which it ends the process are left out.
"""

import ctypes
import hashlib
import json
import os
import sys
from pathlib import Path

import numpy as np

from pumice.gguf import GGMLType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from quantizer_rows import rows, weights

OUT = Path(__file__).resolve().parents[1] / "fixtures" / "quantized_rows.json"
TYPES = (
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q1_0", "Q2_0", "TQ1_0", "TQ2_0", "MXFP4"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"),
    *("IQ3_XXS", "IQ3_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_S", "IQ1_M"),
)
NEED_WEIGHTS = ("IQ2_XXS", "IQ2_XS", "IQ1_S")  # the library ends the process without them


def main(library: str) -> None:
    ggml = ctypes.CDLL(library)
    ggml.ggml_row_size.restype = ctypes.c_size_t
    ggml.ggml_row_size.argtypes = [ctypes.c_int, ctypes.c_int64]
    pointers = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, *pointers]

    def digest(type: str, values: np.ndarray, matrix: np.ndarray | None) -> str:
        out = np.zeros(ggml.ggml_row_size(GGMLType[type], len(values)), np.uint8)
        place = None if matrix is None else matrix.ctypes.data
        reader, writer = os.pipe()
        if os.fork() == 0:
            ggml.ggml_quantize_chunk(GGMLType[type], values.ctypes.data, out.ctypes.data, 0, 1, len(values), place)
            os.write(writer, hashlib.sha256(out).hexdigest()[:16].encode())
            os._exit(0)
        os.wait()
        os.close(writer)
        with os.fdopen(reader) as pipe:
            return pipe.read()

    os.environ["GGML_NO_BACKTRACE"] = "1"
    digests: dict[str, dict[str, dict[str, str]]] = {}
    for type in TYPES:
        ggml.ggml_quantize_init(GGMLType[type])
        kinds = {"weighted": weights()} if type in NEED_WEIGHTS else {"plain": None, "weighted": weights()}
        digests[type] = {
            kind: {name: made for name, values in rows().items() if (made := digest(type, values, matrix))}
            for kind, matrix in kinds.items()
        }
    OUT.write_text(json.dumps(digests, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
