"""Commands send no packet: they run in a network namespace whose only way out is listened to."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoints import FIXTURES, checkpoint_of

LISTENER = Path(__file__).parent / "packet_listener.py"
PUMICE = [sys.executable, "-m", "pumice"]

SERVE = """
import re, signal, subprocess, sys, urllib.request
server = subprocess.Popen([sys.executable, "-m", "pumice", "serve", "--port", "0"], stderr=subprocess.PIPE, text=True)
address = next(line for line in server.stderr if line.startswith("listening on ")).split()[-1]
body = b'{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}'
headers = {"Content-Type": "application/json"}
for path, data in (("/health", None), ("/", None), ("/v1/models", None), ("/v1/chat/completions", body)):
    urllib.request.urlopen(urllib.request.Request(address + path, data, headers)).read()
server.send_signal(signal.SIGTERM)
server.stderr.read()
sys.exit(server.wait())
"""
CONNECT = """
import socket
with socket.socket() as client:
    client.settimeout(0.1)
    client.connect_ex(("192.0.2.1", 443))
try:
    socket.getaddrinfo("example.com", 443)
except OSError:
    pass
"""


@pytest.fixture(scope="module")
def namespace() -> list[str]:
    """Return the prefix that runs a command in a network namespace of its own."""
    for command in (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"]):
        if not shutil.which("unshare"):
            break
        tried = subprocess.run([*command, "test", "-w", "/dev/net/tun"], capture_output=True, check=False)
        if tried.returncode == 0:
            return command
    pytest.skip("network namespaces with a tunnel cannot be made here")


def packets(namespace: list[str], folder: Path, command: list[str], text: str = "") -> list[str]:
    """Return the addresses to which a command, which must succeed, sends packets."""
    file = folder / "packets.json"
    listened = [*namespace, sys.executable, str(LISTENER), str(file), *command]
    done = subprocess.run(listened, input=text, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text())


def test_a_packet_is_seen(namespace, tmp_path):
    seen = packets(namespace, tmp_path, [sys.executable, "-c", CONNECT])
    assert "192.0.2.1:443" in seen
    assert (
        any(packet.endswith(":53") for packet in seen) or Path("/etc/resolv.conf").read_text().count("nameserver") == 0
    )


def test_run_chat_and_serve_send_none(namespace, tmp_path):
    assert packets(namespace, tmp_path, [*PUMICE, "run", "-n", "4"]) == []
    assert packets(namespace, tmp_path, [*PUMICE, "chat", "-n", "4"], "Hello\n") == []
    assert packets(namespace, tmp_path, [sys.executable, "-c", SERVE]) == []


def test_convert_sends_none(namespace, tmp_path):
    case = json.loads((FIXTURES / "cases.json").read_text())["llama-bpe"]
    folder = checkpoint_of(tmp_path / "model", case)
    assert packets(namespace, tmp_path, [*PUMICE, "convert", str(folder), "-o", "out.gguf"]) == []
