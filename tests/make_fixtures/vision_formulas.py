"""Make tests/fixtures/vision_formulas: rows of a picture by transformers' modules and by formulas in PyTorch.

    python tests/make_fixtures/vision_formulas.py path/to/llama.cpp [case...]

It needs torch, transformers, gguf and Pillow.

The rows of the cases that are there are kept as they are: ``git show 553cf67a:tests/make_fixtures/vision_formulas.py``
and f5c87526 have their formulas, and llama.cpp's libmtmd computes them too (``libmtmd.py``). A new case brings a
function of its name here, of its tensors. Also stored are metadata and digests of tensors of the projector that
llama.cpp's converter writes; it runs without its assertions, some of which want the sizes of the published models.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from llama_converter import projector

from checkpoints import weights, write_cases
from vision_formulas import (
    CASES,
    FILES,
    FIXTURE,
    write_folder,
)


def theirs(sources: Path, kind: str) -> dict:
    """Return metadata and tensors of the projector that llama.cpp's converter writes."""
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder) / kind, kind)
        return projector(sources, Path(folder) / kind, ["-O", str(sources / "convert_hf_to_gguf.py")])


if __name__ == "__main__":
    sources, *names = sys.argv[1:]
    stored = dict(np.load(FIXTURE)) if FIXTURE.exists() else {}
    for name in names or FILES:
        if formula := globals().get(name):
            shapes = FILES[name]["shapes"]
            with torch.no_grad():
                made = formula({key: torch.tensor(weights(key, shape)) for key, shape in shapes.items()})
            stored = {key: value for key, value in stored.items() if not key.startswith(f"{name}.")}
            stored |= {f"{name}.{key}": np.asarray(value) for key, value in made.items()}
        if CASES.get(name, {}).get("theirs"):  # None: MiMo's sound is missing, Nemotron's size is another
            CASES[name]["theirs"] = theirs(Path(sources), name)
        write_cases(FIXTURE.with_name("cases.json"), FILES)
        np.savez_compressed(FIXTURE, **stored)
