"""``pumice serve`` as a process: what it says, what it takes of llama-server's command line, how it ends."""

import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click
import httpx2
import pytest

from pumice.commands import BUNDLED_COMMANDS
from pumice_server.arguments import IGNORED, REFUSED, leave_out
from pumice_server.command import command
from pumice_server.plugin import pumice_register_commands

SERVE = [sys.executable, "-m", "pumice", "serve"]


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen, str, list[str]]]:
    """The process, its address, and what it has said on stderr."""
    process = subprocess.Popen([*SERVE, "--port", "0", *arguments], stderr=subprocess.PIPE, text=True)
    said: list[str] = []
    try:
        for line in process.stderr:
            said.append(line)
            if found := re.match(r"listening on (https?://\S+)", line):
                yield process, found[1], said
                break
        else:
            pytest.fail("".join(said))
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_the_command_is_the_same_by_its_hook_and_without():
    hooked = {}
    pumice_register_commands(hooked.__setitem__)
    assert hooked == BUNDLED_COMMANDS


def test_llama_servers_command_line_and_a_stop_that_lets_requests_end():
    options = "-c 256 -np 2 -t 1 -a one,two --jinja -fa on --no-mmap --temp 0 -ngl 99 --backend cpu"
    with serving(*options.split()) as (process, url, said):
        assert any("warning: -fa has no meaning" in line for line in said)
        assert httpx2.get(f"{url}/v1/models").json()["data"][0]["id"] == "one"
        assert "one, two" in httpx2.get(url).text
        body = {"prompt": "Once", "max_tokens": 200, "ignore_eos": True}
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(httpx2.post(f"{url}/v1/completions", json=body, timeout=60))
        )
        thread.start()
        while not answers and not any(slot["is_processing"] for slot in httpx2.get(f"{url}/slots").json()):
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        thread.join()
        assert answers[0].json()["usage"]["completion_tokens"] == 200
        assert process.wait(timeout=20) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "lets others on the network in"),
        (["--mmproj", "x"], "models see no images yet"),
        (["a.gguf", "-m", "b.gguf", "-a", "one"], "-a names one model"),
        (["--models-dir", "/nowhere"], "/nowhere is not a folder"),
        (["--api-key", ""], "--api-key is empty"),
        (["-ctk", "f16", "-ctv", "q8_0"], "keys and values have one type"),
        (["-ngl", "many"], "-ngl: expected a number"),
        (["--ssl-key-file", "x"], "TLS needs both"),
        (["--ssl-key-file", "/nowhere", "--ssl-cert-file", "/nowhere", "--port", "0"], "TLS: /nowhere, /nowhere: "),
        (["--no-such"], "No such option"),
        (["--api-key-file", "/nowhere"], "cannot read the keys"),
        (["--host", "192.0.2.1", "--insecure"], "cannot listen on 192.0.2.1:8080"),
        (["absent.gguf", "--port", "0"], "absent.gguf"),
        (["--backend", "absent", "--port", "0"], "absent"),
    ],
)
def test_wrong_options(arguments, message):
    done = subprocess.run([*SERVE, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_tls(tmp_path):
    files = [str(tmp_path / name) for name in ("key.pem", "certificate.pem")]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on the PATH")
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", files[0], "-out", files[1]]
    subprocess.run([*make, *names], check=True, capture_output=True)
    with serving("--ssl-key-file", files[0], "--ssl-cert-file", files[1]) as (_, url, _):
        assert url.startswith("https://")
        trusted = ssl.create_default_context(cafile=files[1])
        assert httpx2.get(f"{url}/health", verify=trusted).json() == {"status": "ok"}


def test_without_the_extra():
    code = "import sys; sys.modules['starlette'] = None; sys.argv[1:] = ['serve']; from pumice.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "is not installed: pip install 'pumice[server]'" in done.stderr


def test_options_that_are_left_out():
    assert leave_out(["-m", "--jinja", "-fa", "on", "--poll=50", "x", "--", "--jinja"], ["-m"]) == (
        ["-m", "--jinja", "x", "--", "--jinja"],
        ["-fa", "--poll"],
    )
    with pytest.raises(click.UsageError, match="LoRA"):
        leave_out(["--lora", "x"], [])


def test_no_option_is_both_known_and_left_out():
    known = {name for param in command.params for name in param.opts}
    assert not known & {*IGNORED, *REFUSED}
    assert not set(IGNORED) & set(REFUSED)
