"""Send damaged, odd and hostile sound files to `pumice serve`, and report wrong answers and leaks.

    python bench/hostile_sounds.py [-n 1000] [--clients 2] [MODEL]

Writes JSON: answers by kind of file and status, those that are wrong, and memory, open files and threads of the
server's process before and after. Without a model, a tiny one with random weights hears.
"""

import base64
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from hostile_files import arguments_of, ask, report
from serve_process import serving

from gguf_files import tiny_llama
from hearing_models import SHAPES, write_folder
from hostile_sounds import KINDS, hostile
from pumice.convert import ConvertOptions, write_model
from pumice.gguf import GGMLType
from pumice.model_files.opening import open_model


def hearing_model(folder: Path) -> str:
    """Write a tiny model with Qwen2-Audio's projector, and return its path."""
    write_folder(folder / "audio", "qwen2audio", json.loads(SHAPES.read_text())["qwen2audio"]["shapes"])
    with open_model(folder / "audio", options=ConvertOptions(GGMLType.F32, mmproj=True)) as file:
        write_model(file, folder / "mmproj.gguf")
    return str(tiny_llama(folder / "tiny.gguf"))


def main() -> None:
    arguments = arguments_of(__doc__, "")
    with (
        TemporaryDirectory() as folder,
        serving([arguments.model or hearing_model(Path(folder)), "--chat-template", "chatml"]) as (server, url),
    ):

        def send(seed: int) -> tuple[str, int, str]:
            file = hostile(seed)
            sound = {"data": base64.b64encode(file[1]).decode(), "format": "wav"}
            return ask(url, file, {"type": "input_audio", "input_audio": sound}, "audio")

        report(send, server.pid, arguments.n, arguments.clients, n_warm_up=2 * len(KINDS))


if __name__ == "__main__":
    main()
