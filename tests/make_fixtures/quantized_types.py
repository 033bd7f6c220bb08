"""Make tests/fixtures/quantized_types.json: the types that llama-quantize chooses for ``quantize_outlines.py``.

python tests/make_fixtures/quantized_types.py path/to/llama-quantize
"""

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from pumice.gguf import GGMLType, TensorInfo, Writer
from pumice.quantize import FILE_TYPES

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from quantize_outlines import OUTLINES, write_outline

OUT = Path(__file__).resolve().parents[1] / "fixtures" / "quantized_types.json"
LINE = re.compile(r"\[ *\d+/ *\d+\] (\S+) .*?, type = +(\w+), .*?(?:\((\w+)\))?$", re.MULTILINE)


def main(program: str) -> None:
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        imatrix = write_imatrix(folder / "imatrix.gguf")
        for outline in OUTLINES:
            model = write_outline(folder / "model.gguf", outline)
            for to in FILE_TYPES:
                for label, options in ((to, []), (f"{to} imatrix", ["--imatrix", str(imatrix)])):
                    command = [program, "--dry-run", *options, str(model), to]
                    done = subprocess.run(command, capture_output=True, text=True, check=False)
                    text = done.stdout + done.stderr
                    assert done.returncode == 0 or "no tensor type fallback" in text, text
                    types = {name: (new or old).upper() for name, old, new in LINE.findall(text)}
                    assert done.returncode or list(types), text
                    found.setdefault(outline, {})[label] = digest(types) if not done.returncode else "refused"
    OUT.write_text(json.dumps(found, indent=1) + "\n")


def digest(types: dict[str, str]) -> str:
    return hashlib.sha256("\n".join(f"{name} {type}" for name, type in types.items()).encode()).hexdigest()[:12]


def write_imatrix(path: Path) -> Path:
    """Write an importance matrix of a tensor that no model has: the rules only ask whether there is a matrix."""
    metadata = {
        "general.type": "imatrix",
        "imatrix.datasets": ["text"],
        "imatrix.chunk_count": 1,
        "imatrix.chunk_size": 512,
    }
    infos = [TensorInfo("x.in_sum2", GGMLType.F32, (1, 4)), TensorInfo("x.counts", GGMLType.F32, (1, 1))]
    with Writer(path, metadata, infos) as writer:
        writer.write(np.ones(4, np.float32))
        writer.write(np.ones(1, np.float32))
    return path


if __name__ == "__main__":
    main(sys.argv[1])
