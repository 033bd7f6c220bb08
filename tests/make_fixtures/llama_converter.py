"""Projectors by llama.cpp's converter."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vision_models import described


def projector(sources: Path, folder: Path, script: Sequence[str] = ()) -> dict[str, Any]:
    """Return metadata and tensors of the projector that the converter writes of a checkpoint.

    sources: llama.cpp's; script: arguments of Python in place of the converter's path.
    """
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "mmproj.gguf"
        command = [sys.executable, *(script or [str(sources / "convert_hf_to_gguf.py")])]
        environment = os.environ | {"PYTHONPATH": str(sources / "gguf-py"), "HF_HUB_OFFLINE": "1"}
        options = ["--mmproj", "--outtype", "f32", "--outfile", str(out)]
        subprocess.run([*command, *options, str(folder)], env=environment, check=True)
        return described(out)
