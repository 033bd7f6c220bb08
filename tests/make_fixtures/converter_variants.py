"""Make tests/fixtures/converter_variants.json: projectors of the variants by llama.cpp's converter.

    python tests/make_fixtures/converter_variants.py path/to/llama.cpp

It needs Pumice, and what convert_hf_to_gguf.py needs (torch, transformers, gguf).
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from llama_converter import projector

from converter_variants import FIXTURE, VARIANTS

# Sizes of Nemotron's encoder are in the converter; with fewer layers it knows no name of a third matrix.
SIZED = """
import runpy, sys
sys.path.insert(0, {0!r})
from conversion.nemotron import NemotronNanoV2VLModel as Model
Model._vit_hidden_size, Model._vit_intermediate_size, Model._vit_num_layers, Model._vit_num_heads = 32, 48, 4, 2
runpy.run_path({0!r} + "/convert_hf_to_gguf.py", run_name="__main__")
"""


def theirs(sources: Path, name: str) -> dict[str, Any]:
    """Return metadata and tensors of the projector that the converter writes."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / name
        VARIANTS[name](folder)
        script = ["-O", str(sources / "convert_hf_to_gguf.py")]
        if name == "nemotron_v2_vl":
            script = ["-O", "-c", SIZED.format(str(sources))]
        return projector(sources, folder, script)


if __name__ == "__main__":
    files = {name: theirs(Path(sys.argv[1]), name) for name in VARIANTS}
    FIXTURE.write_text(json.dumps(files, separators=(",", ":")).replace('},"', '},\n"') + "\n")
