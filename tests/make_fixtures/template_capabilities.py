"""Make tests/fixtures/template_capabilities.json: what llama-server says that chat templates can do.

    python tests/make_fixtures/template_capabilities.py path/to/llama-server

For each built-in template and each of tests/family_templates.py, the names in ``chat_template_caps`` of ``GET /props``
that are true.
"""

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import pumice
from pumice.chat import BUILTIN

TESTS = Path(__file__).resolve().parents[1]
OUT = TESTS / "fixtures" / "template_capabilities.json"
PORT = 18907
SECONDS = 60.0  # for a server to answer


def main(program: str) -> None:
    sys.path.insert(0, str(TESTS))
    from family_templates import FAMILIES

    told = {name: capabilities(program, source) for name, source in {**BUILTIN, **FAMILIES}.items()}
    OUT.write_text(json.dumps(told, indent=1) + "\n")


def capabilities(program: str, source: str) -> list[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
        file.write(source)
        file.flush()
        command = [program, "-m", str(pumice.demo_model_path()), "--port", str(PORT), "--jinja", "-c", "256"]
        command += ["--chat-template-file", file.name, "--no-warmup"]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return sorted(name for name, can in _props()["chat_template_caps"].items() if can)
        finally:
            server.kill()
            server.wait()


def _props() -> dict[str, dict[str, bool]]:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/props") as answer:
                told: dict[str, dict[str, bool]] = json.load(answer)
                return told
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
