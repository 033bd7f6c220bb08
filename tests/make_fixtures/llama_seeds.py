"""Make tests/fixtures/llama_seeds.json: what llama-server generates from the demo model, in float32, with some seeds.

python tests/make_fixtures/llama_seeds.py path/to/llama-server
"""

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from pumice.demo import demo_model_path
from pumice.quantize import QuantizeOptions, quantize

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "fixtures" / "llama_seeds.json"
URL = "http://127.0.0.1:18999"
CASES: list[dict[str, Any]] = [
    *({"seed": seed} for seed in (0, 1, 2, 4294967290)),
    {"seed": 3, "xtc_probability": 0.5},
    {"seed": 4, "temperature": 1.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    {"seed": 5, "mirostat": 1, "mirostat_tau": 1.0},
    {"seed": 6, "mirostat": 1, "mirostat_tau": 2.0, "mirostat_eta": 0.3},
    {"seed": 7, "mirostat": 2},
    {"seed": 8, "mirostat": 2, "mirostat_tau": 1.0, "temperature": 1.2},
]


def ask(case: dict[str, Any]) -> list[int]:
    body = {"prompt": "Once upon a time", "n_predict": 40, "return_tokens": True, "cache_prompt": False, **case}
    request = urllib.request.Request(
        f"{URL}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["tokens"]


def wait() -> None:
    while True:
        try:
            urllib.request.urlopen(f"{URL}/health", timeout=5)
            return
        except (urllib.error.URLError, TimeoutError):
            time.sleep(0.2)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "demo.gguf"
        quantize(demo_model_path(), path, "F32", options=QuantizeOptions(allow_requantize=True))
        exact = ["-t", "1", "-c", "512", "-np", "1", "-ctk", "f32", "-ctv", "f32", "-fa", "off", "--port", "18999"]
        server = subprocess.Popen([sys.argv[1], "-m", str(path), *exact])
        try:
            wait()
            OUT.write_text(json.dumps([{**case, "tokens": ask(case)} for case in CASES]) + "\n")
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
