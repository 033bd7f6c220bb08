"""Videos in requests, by the official clients; the model is a tiny one with SmolVLM's projector."""

import base64
from collections.abc import Iterator

import ollama
import pytest

import pumice
from gguf_files import tiny_llama
from pumice.plugin.unstable import ModelSpec
from server_thread import Serving, serving
from videos import video_file
from vision_files import write_projector

pytest.importorskip("av")
pytest.importorskip("PIL")
OPTIONS = {"backend": "numpy", "chat_template": "chatml"}
GREEDY = {"temperature": 0.0, "max_tokens": 4}
QUESTION = "What?"
FILE = video_file(10)
BASE64 = base64.b64encode(FILE).decode()
URL = f"data:video/mp4;base64,{BASE64}"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watches")
    write_projector(folder / "mmproj.gguf", "idefics3")
    return tiny_llama(folder / "tiny.gguf", n_ctx=512)


@pytest.fixture(scope="module")
def server(path) -> Iterator[Serving]:
    with serving(ModelSpec(["watches"], str(path), OPTIONS), max_sequences=2) as server:
        yield server


@pytest.fixture(scope="module")
def expected(path) -> pumice.ChatCompletion:
    with pumice.load(path, **OPTIONS) as model:
        return model.chat([{"role": "user", "content": [pumice.Video(FILE), QUESTION]}], **GREEDY)


def test_every_protocol_takes_videos(server, client, expected):
    for part in (
        {"type": "video_url", "video_url": {"url": URL}},  # vLLM's
        {"type": "input_video", "input_video": {"data": BASE64}},  # llama-server's
    ):
        messages = [{"role": "user", "content": [part, {"type": "text", "text": QUESTION}]}]
        answer = client.chat.completions.create(model="watches", messages=messages, **GREEDY)
        assert answer.choices[0].message.content == expected.message.content
        assert answer.usage.prompt_tokens == expected.usage.prompt_tokens
    content = [{"type": "input_video", "input_video": {"data": BASE64}}, {"type": "input_text", "text": QUESTION}]
    response = client.responses.create(model="watches", input=[{"role": "user", "content": content}])
    assert response.usage.input_tokens == expected.usage.prompt_tokens
    message = {"role": "user", "content": QUESTION, "images": [BASE64]}
    told = ollama.Client(server.url).chat("watches", [message], options={"temperature": 0, "num_predict": 4})
    assert told.message.content == expected.message.content
    properties = server.client.get("/props").json()
    assert properties["modalities"] == {"vision": True, "video": True, "audio": False}
    assert "video" in server.client.get("/v1/models").json()["models"][0]["capabilities"]
    native = {"prompt_string": f"{properties['media_marker']}?", "multimodal_data": [BASE64]}
    assert "content" in server.client.post("/completion", json={"prompt": native, "n_predict": 2}).json()


def test_a_model_that_is_not_loaded_says_what_it_takes(server):
    def abilities():
        return server.client.get("/v1/models").json()["models"][0]["capabilities"]

    assert server.client.post("/completion", json={"prompt": "a", "n_predict": 1}).status_code == 200
    loaded = abilities()
    assert server.client.post("/models/unload", json={"model": "watches"}).json() == {"success": True}
    assert abilities() == loaded == ["completion", "vision", "video", "multimodal"]


@pytest.mark.parametrize(
    ("video", "problem"),
    [
        ({"url": "https://example.com/a.mp4"}, "URLs and paths are not opened"),
        ({"url": "data:image/png;base64,AAAA"}, "expected data:video/mp4;base64"),
        ({"data": base64.b64encode(FILE[: len(FILE) // 2]).decode()}, "video: "),
        ({"data": base64.b64encode(b"#EXTM3U\n/etc/passwd").decode()}, "the bytes are no video"),
        ({}, "the part has no video; give it as a data: URL"),
    ],
)
def test_an_invalid_video_is_one_error(server, video, problem):
    part = {"type": "input_video", "input_video": video}
    answer = server.client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": [part]}]})
    assert answer.status_code == 400
    assert problem in answer.json()["error"]["message"]
    assert "\n" not in answer.json()["error"]["message"]
