"""``serve run pumice_ray:app``, and ``pumice serve --ray`` as a process: both answer, stream, and end."""

import json
import re
import signal
import socket
import subprocess
import sys

import httpx2
import pytest

import pumice
import pumice_ray
from waiting import PATIENCE

pytestmark = pytest.mark.ray

BODY = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 16}


@pytest.fixture(scope="module")
def text() -> str:
    with pumice.load() as model:
        return model.generate(BODY["prompt"], temperature=0, max_tokens=16).text


def check(url: str, text: str, **options) -> None:
    with httpx2.Client(base_url=url, timeout=120, **options) as client:
        assert client.post("/v1/completions", json=BODY).json()["choices"][0]["text"] == text
        with client.stream("POST", "/v1/completions", json={**BODY, "stream": True}) as response:
            *parts, last = [line for line in response.iter_lines() if line]
        assert "".join(json.loads(part[6:])["choices"][0]["text"] for part in parts) == text
        assert last == "data: [DONE]"


def test_the_application_of_serve(cluster, text):
    from ray import serve

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve.shutdown()
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    try:
        room = {"replicas": "1", "replica_cpus": "0.25", "ingress_cpus": "0.25"}
        arguments = {**room, "n_parallel": "4", "api_key": "secret"}
        serve.run(pumice_ray.app(arguments), name="app", route_prefix="/")
        url = f"http://127.0.0.1:{port}"
        assert httpx2.post(f"{url}/v1/completions", json=BODY, timeout=PATIENCE).status_code == 401
        check(url, text, headers={"Authorization": "Bearer secret"})
    finally:
        serve.shutdown()


def test_room_that_the_cluster_never_has(cluster):
    with pytest.raises(pumice.PumiceError, match=r"requested 1 x 64 CPU.*gave up after 1 seconds"):
        pumice_ray.app({"replica_cpus": "64", "replica_wait": "1"})
    with pytest.raises(pumice.PumiceError, match="replica_wait: expected a number, not 'soon'"):
        pumice_ray.app({"replica_wait": "soon"})


def test_the_command_of_the_server(cluster, text):
    command = [sys.executable, "-m", "pumice", "serve", "--port", "0", "-np", "4"]
    where = [f"--ray={cluster.address}", "--replica-cpus", "0.25"]
    process = subprocess.Popen([*command, *where], stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stderr:
            if found := re.match(r"listening on (http://\S+)", line):
                break
        else:
            pytest.fail("it never listened")
        check(found[1], text)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
