"""``serve run pumice_ray:app``, and ``pumice serve --ray`` as a process: both answer, stream, and end."""

import base64
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

import hearing_models
import pumice
import pumice_ray
from hostile_sounds import pcm, wav
from imported_late import Late
from pumice.convert import ConvertOptions, write_model
from pumice.gguf import GGMLType
from pumice.model_files.opening import open_model
from vision_files import encoded, picture
from waiting import PATIENCE, wait_until

pytestmark = pytest.mark.ray
openai = Late("openai")

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


@contextmanager
def command_serving(cluster: Any, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run ``pumice serve --ray`` with these arguments: its URL and process."""
    where = [f"--ray={cluster.address}", "--replica-cpus", "0.25", "--port", "0", "-np", "4"]
    command = [sys.executable, "-m", "pumice", "serve", *arguments, *where]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if listening := re.match(r"listening on (http://\S+)", line):
                break
        else:
            pytest.fail("it never listened")
        yield listening[1], process
    finally:
        process.terminate()  # it ends its replicas, whose room the next tests need
        process.wait(PATIENCE)
        process.stderr.close()


def test_the_command_of_the_server(cluster, text):
    with command_serving(cluster) as (url, process):
        check(url, text)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_a_server_that_is_killed_leaves_no_replica(cluster):
    """Neither with an open request, whose client has ended as well."""
    from ray import serve

    with command_serving(cluster) as (url, process):
        body = {**BODY, "max_tokens": 100_000, "ignore_eos": True, "stream": True}
        with httpx2.stream("POST", f"{url}/v1/completions", json=body, timeout=PATIENCE) as response:
            next(response.iter_lines())
            assert serve.status().applications
            process.kill()
    wait_until(lambda: not serve.status().applications)


def test_a_replica_sees_and_hears_as_on_one_machine(cluster, tmp_path):
    """By OpenAI's client; a replica sends the rows of an image or a sound, since another one may read them."""
    pytest.importorskip("PIL")
    pytest.importorskip("soundfile")
    kind = "qwen25omni"
    folder = hearing_models.write_folder(tmp_path / kind, kind)
    for name, mmproj in (("model", False), ("mmproj", True)):
        with open_model(folder, options=ConvertOptions(GGMLType.F32, mmproj=mmproj)) as file:
            write_model(file, folder / f"{name}.gguf")
    model, image, sound = str(folder / "model.gguf"), encoded(picture(90, 50)), wav(pcm(hearing_models.sound(0.4)))
    image_url = {"url": f"data:image/png;base64,{base64.b64encode(image).decode()}"}
    input_audio = {"data": base64.b64encode(sound).decode(), "format": "wav"}
    parts = {
        "image": ({"type": "image_url", "image_url": image_url}, pumice.Image(image)),
        "sound": ({"type": "input_audio", "input_audio": input_audio}, pumice.Audio(sound)),
    }
    greedy: dict[str, Any] = {"temperature": 0.0, "max_tokens": 5}
    options = {"backend": "numpy", "chat_template": "chatml"}
    with pumice.load(model, **options) as here:
        chats = {
            name: here.chat([{"role": "user", "content": ["a", own]}], **greedy) for name, (_, own) in parts.items()
        }
    with command_serving(cluster, model, "--backend", "numpy", "--chat-template", "chatml") as (url, _):
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=PATIENCE)
        for name, (part, _) in parts.items():
            message = {"role": "user", "content": [{"type": "text", "text": "a"}, part]}
            answer = client.chat.completions.create(model="model", messages=[message], **greedy)
            assert answer.choices[0].message.content == chats[name].message.content, name
            assert answer.usage.prompt_tokens == chats[name].usage.prompt_tokens, name
            stream = client.chat.completions.create(model="model", messages=[message], stream=True, **greedy)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
            assert text == chats[name].message.content, name
