"""Send damaged, odd and hostile sound files to `pumice serve`, and report wrong answers and leaks.

    python bench/hostile_sounds.py [-n 1000] [--clients 2] [MODEL]

Writes JSON: answers by kind of file and status, those that are wrong, and memory, open files and threads of the
server's process before and after. Without a model, a tiny one with random weights hears.
"""

import argparse
import base64
import json
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from serve_faults import held
from serve_process import serving

from gguf_files import tiny_llama
from hearing_models import SHAPES, write_folder
from hostile_sounds import KINDS, hostile
from pumice.convert import ConvertOptions, write_model
from pumice.gguf import GGMLType
from pumice.model_files.opening import open_model


def ask(url: str, seed: int) -> tuple[str, int, str]:
    """Return kind, status and, of a wrong answer, its text."""
    kind, data, statuses = hostile(seed)
    sound = {"data": base64.b64encode(data).decode(), "format": "wav"}
    messages = [{"role": "user", "content": [{"type": "input_audio", "input_audio": sound}]}]
    body = json.dumps({"messages": messages, "max_tokens": 1}).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            status, text = response.status, ""
    except urllib.error.HTTPError as error:
        status, text = error.code, json.loads(error.read())["error"]["message"]
    wrong = status not in statuses or "\n" in text or "Traceback" in text or (text and "audio" not in text)
    return kind, status, f"{kind} {seed}: {status} {text!r:.200}" if wrong else ""


def hearing_model(folder: Path) -> str:
    """Write a tiny model with Qwen2-Audio's projector, and return its path."""
    write_folder(folder / "audio", "qwen2audio", json.loads(SHAPES.read_text())["qwen2audio"]["shapes"])
    with open_model(folder / "audio", options=ConvertOptions(GGMLType.F32, mmproj=True)) as file:
        write_model(file, folder / "mmproj.gguf")
    return str(tiny_llama(folder / "tiny.gguf"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("model", nargs="?", default="")
    arguments = parser.parse_args()
    with (
        TemporaryDirectory() as folder,
        serving([arguments.model or hearing_model(Path(folder)), "--chat-template", "chatml"]) as (server, url),
        ThreadPoolExecutor(arguments.clients) as clients,
    ):
        for i in range(2 * len(KINDS)):  # warm-up: fills caches before the first measurement
            ask(url, -1 - i)
        before, started = held(server.pid), time.monotonic()
        answers = list(clients.map(lambda i: ask(url, i), range(arguments.n)))
        spent = time.monotonic() - started
        counts = Counter(f"{kind} {status}" for kind, status, _ in answers)
        wrong = [text for *_, text in answers if text]
        report = {"files": arguments.n, "seconds": round(spent, 1), "answers": dict(sorted(counts.items()))}
        report |= {"wrong": len(wrong), "examples": wrong[:20], "before": before, "after": held(server.pid)}
        print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
