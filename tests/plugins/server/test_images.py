"""Images in requests of every protocol, by the official clients; the model is a tiny one with LLaVA's projector."""

import base64
import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import suppress

import httpx2
import numpy as np
import ollama
import pytest

import pumice
from gguf_files import tiny_llama
from hostile_images import KINDS, hostile
from imported_late import Late
from pumice.clients import REQUEST_CANCELLED
from pumice.frontend import media as base
from pumice.hub.client import _Transport
from pumice.plugin.unstable import ModelSpec
from server_thread import Serving, connect, serving
from vision_files import encoded, picture, write_projector
from waiting import PATIENCE, wait_until

anthropic = Late("anthropic")

Pillow = pytest.importorskip("PIL.Image")
OPTIONS = {"backend": "numpy", "chat_template": "chatml"}
QUESTION = "What is this?"
HOST = "images.example"  # from which images may be fetched
PNG = encoded(picture(50, 30))
BASE64 = base64.b64encode(PNG).decode()
URL = f"data:image/png;base64,{BASE64}"
OPENAI = [{"type": "text", "text": QUESTION}, {"type": "image_url", "image_url": {"url": URL}}]
RESPONSES = [{"type": "input_text", "text": QUESTION}, {"type": "input_image", "image_url": URL}]
SOURCE = {"type": "base64", "media_type": "image/png", "data": BASE64}
ANTHROPIC = [{"type": "image", "source": SOURCE}, {"type": "text", "text": QUESTION}]
GREEDY = {"temperature": 0.0, "max_tokens": 5}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sees")
    write_projector(folder / "mmproj.gguf", "mlp")
    return tiny_llama(folder / "tiny.gguf")


@pytest.fixture(scope="module")
def server(path) -> Iterator[Serving]:
    settings = {"max_sequences": 4, "context_shift": True, "media_hosts": [HOST]}
    with serving(ModelSpec(["sees"], str(path), OPTIONS), **settings) as server:
        yield server


@pytest.fixture(scope="module")
def expected(path) -> dict[str, pumice.ChatCompletion]:
    """Answers to the question behind an image, and before it."""
    image = pumice.Image(picture(50, 30))
    with pumice.load(path, **OPTIONS) as model:
        chats = {"before": [image, QUESTION], "after": [QUESTION, image]}
        return {name: model.chat([{"role": "user", "content": content}], **GREEDY) for name, content in chats.items()}


def test_openais_chat(server, client, expected):
    messages = [{"role": "user", "content": OPENAI}]
    answer = client.chat.completions.create(model="sees", messages=messages, **GREEDY)
    assert answer.choices[0].message.content == expected["after"].message.content
    assert answer.usage.prompt_tokens == expected["after"].usage.prompt_tokens
    options = {**GREEDY, "stream": True, "stream_options": {"include_usage": True}}
    *parts, end = client.chat.completions.create(model="sees", messages=messages, **options)
    assert "".join(part.choices[0].delta.content or "" for part in parts) == answer.choices[0].message.content
    assert end.usage.prompt_tokens_details.cached_tokens == answer.usage.prompt_tokens - 1
    counted = server.client.post("/v1/chat/completions/input_tokens", json={"messages": messages}).json()
    assert counted["input_tokens"] == answer.usage.prompt_tokens
    shown = server.client.post("/apply-template", json={"messages": messages}).json()["prompt"]
    assert f"{QUESTION}<__media__>" in shown


def test_openais_responses(client, expected):
    options = {"temperature": 0.0, "max_output_tokens": 5}
    first = client.responses.create(model="sees", input=[{"role": "user", "content": RESPONSES}], **options)
    assert first.output_text == expected["after"].message.content
    assert first.usage.input_tokens == expected["after"].usage.prompt_tokens
    second = client.responses.create(model="sees", input="And now?", previous_response_id=first.id, **options)
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens - 1


def test_anthropics_messages(server, expected):
    client = anthropic.Anthropic(base_url=server.url, api_key="none")
    messages = [{"role": "user", "content": ANTHROPIC}]
    answer = client.messages.create(model="sees", messages=messages, max_tokens=5, extra_body=GREEDY)
    assert answer.content[0].text == expected["before"].message.content
    n_tokens = answer.usage.input_tokens + answer.usage.cache_read_input_tokens
    assert n_tokens == expected["before"].usage.prompt_tokens
    assert client.messages.count_tokens(model="sees", messages=messages).input_tokens == n_tokens
    result = {"type": "tool_result", "tool_use_id": "a", "content": [ANTHROPIC[0]]}
    answer = client.messages.create(model="sees", messages=[{"role": "user", "content": [result]}], max_tokens=5)
    assert answer.usage.input_tokens + answer.usage.cache_read_input_tokens > 16


def test_ollamas_chat_and_generate(server, expected, tmp_path):
    client, options = ollama.Client(host=server.url), {"temperature": 0, "num_predict": 5}
    message = {"role": "user", "content": QUESTION, "images": [PNG]}
    answer = client.chat(model="sees", messages=[message], options=options)
    assert answer.message.content == expected["before"].message.content
    assert answer.prompt_eval_count == expected["before"].usage.prompt_tokens
    (tmp_path / "a.png").write_bytes(PNG)
    generated = client.generate(model="sees", prompt=QUESTION, images=[str(tmp_path / "a.png")], options=options)
    assert generated.response == answer.message.content
    assert "vision" in client.show("sees").capabilities


def test_embeddings_of_images(server, client, path):
    image = pumice.Image(picture(50, 30))
    with pumice.load(path, **OPTIONS) as model:
        expected = model.embed([["a picture: ", image, " shows"], "a", image])
        n_tokens = sum(len(text.tokens) for text in model.media.prepare([["a picture: ", image, " shows"], "a", image]))
    marker = server.client.get("/props").json()["media_marker"]
    native = {"prompt_string": f"a picture: {marker} shows", "multimodal_data": [BASE64]}
    answer = server.client.post("/embeddings", json={"content": [native, "a", OPENAI[1]]}).json()
    np.testing.assert_allclose([item["embedding"][0] for item in answer], expected, atol=1e-5)
    parts = {"content": [{"type": "text", "text": "a picture: "}, OPENAI[1], {"type": "text", "text": " shows"}]}
    answer = client.embeddings.create(model="sees", input=[parts, "a", OPENAI[1]])
    np.testing.assert_allclose([item.embedding for item in answer.data], expected, atol=1e-5)
    assert answer.usage.prompt_tokens == n_tokens


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([{"content": [{"type": "video", "video": "a"}]}], r"content\[0\]: video: URLs and paths are not opened"),
        ([{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}], "data: URL"),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}], "the bytes are no image"),
        ([OPENAI[1]] * 65, "at most 64"),
        ([{"content": [OPENAI[1]] * 65}], "more than 64 images"),
        ({"content": []}, "no tokens|must be text"),
        ({"prompt_string": "a", "multimodal_data": [BASE64]}, "0 markers for 1 files"),
    ],
)
def test_wrong_inputs_to_embed_are_refused(server, given, problem):
    answer = server.client.post("/v1/embeddings", json={"input": given})
    assert answer.status_code == 400
    assert re.search(problem, answer.json()["error"]["message"]), answer.text
    assert "\n" not in answer.json()["error"]["message"]


def test_llama_servers_completion_and_properties(server, path):
    properties = server.client.get("/props").json()
    assert properties["modalities"] == {"vision": True, "video": False, "audio": False}
    marker = properties["media_marker"]
    prompt = {"prompt_string": f"a picture: {marker} shows", "multimodal_data": [BASE64]}
    body = {"prompt": prompt, "temperature": 0, "n_predict": 5}
    answer = server.client.post("/completion", json=body).json()
    with pumice.load(path, backend="numpy") as model:
        direct = model.generate(["a picture: ", pumice.Image(PNG), " shows"], **GREEDY)
    assert answer["content"] == direct.text
    assert (answer["tokens_evaluated"], answer["prompt"]) == (direct.timings.prompt_tokens, prompt["prompt_string"])
    several = server.client.post("/completion", json=body | {"prompt": [prompt, "b"]}).json()
    assert [each["content"] == direct.text for each in several] == [True, False]
    assert server.client.get("/v1/models").json()["models"][0]["capabilities"][-1] == "multimodal"


def ways(image: str, source: dict) -> list[tuple[str, dict]]:
    """Requests with an image, as a URL and as the source of Anthropic's block, in every protocol."""
    user = {"role": "user"}
    chat = [{"type": "image_url", "image_url": {"url": image}}]
    bare = image.rpartition(",")[2]
    return [
        ("/v1/chat/completions", {"messages": [{**user, "content": chat}]}),
        ("/v1/responses", {"input": [{**user, "content": [{"type": "input_image", "image_url": image}]}]}),
        ("/v1/messages", {"messages": [{**user, "content": [{"type": "image", "source": source}]}], "max_tokens": 5}),
        ("/api/chat", {"messages": [{**user, "content": "x", "images": [bare]}]}),
        ("/api/generate", {"prompt": "x", "images": [bare]}),
    ]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (PNG[:60], "decode|image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "no image; send PNG"),
        (encoded(Pillow.new("1", (9000, 9000))), "9000 x 9000 pixels"),
    ],
)
def test_images_that_cannot_be_decoded(server, data, problem):
    text = base64.b64encode(data).decode()
    for path, body in ways(f"data:image/png;base64,{text}", {**SOURCE, "data": text}):
        response = server.client.post(path, json=body)
        assert response.status_code == 400, (path, response.text)
        assert "Traceback" not in response.text
        assert re.search(problem, response.text), response.text


def test_a_missing_package_is_told_to_clients_without_paths(path, monkeypatch, caplog):
    problem = "decoding needs Pillow: pip install pillow"

    def missing(*_: object) -> None:
        raise pumice.MissingPackageError("image", problem)

    monkeypatch.setattr(base, "pixels_of", missing)
    monkeypatch.setattr("pumice_server.models.model_loading.find_spec", lambda name: None)
    with serving(ModelSpec(["sees"], str(path), OPTIONS)) as server:
        for endpoint, body in ways(URL, SOURCE):
            response = server.client.post(endpoint, json=body)
            assert (response.status_code, problem in response.text) == (501, True), response.text
    assert [record.message for record in caplog.records if "PIL missing: requests with images" in record.message]


def test_hostile_files_are_one_line_and_leave_the_server_alone(server):
    """Some files of each kind are sent."""
    for seed in range(3 * len(KINDS)):
        kind, data, statuses = hostile(seed)
        url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        content = [{"type": "image_url", "image_url": {"url": url}}]
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
        answer = server.client.post("/v1/chat/completions", json=body)
        assert answer.status_code in statuses, (kind, seed, answer.text)
        if answer.status_code == 400:
            message = answer.json()["error"]["message"]
            assert "image" in message, (kind, seed, message)
            assert message.isprintable(), (kind, seed, message)


@pytest.mark.parametrize("url", ["http://example.com/a.png", "/etc/passwd", "data:image/png;base64,?"])
def test_an_invalid_image_is_refused_in_one_line(server, url):
    for path, body in ways(url, {"type": "url", "url": url}):
        response = server.client.post(path, json=body)
        assert response.status_code == 400, (path, response.text)
        assert "image" in response.text


def test_an_image_of_a_listed_host_is_fetched(server, client, expected, monkeypatch):
    asked = []

    class Wire(httpx2.BaseTransport):
        def handle_request(self, request):
            asked.append(request.url.path)
            return httpx2.Response(200, content=iter([PNG if request.url.path == "/a.png" else b"<html>"]))

    monkeypatch.setattr(_Transport, "_way", lambda self, proxy: Wire())
    monkeypatch.setattr("pumice.hub.addresses.resolve", lambda host, port: ["1.1.1.1"])
    url = f"https://{HOST}/a.png"
    for path, body in ways(url, {"type": "url", "url": url})[:3]:
        answer = server.client.post(path, json=body)
        assert answer.status_code == 200, (path, answer.text)
    content = [OPENAI[0], {"type": "image_url", "image_url": {"url": url}}]
    messages = [{"role": "user", "content": content}]
    answer = client.chat.completions.create(model="sees", messages=messages, **GREEDY)
    assert answer.choices[0].message.content == expected["after"].message.content
    counted = server.client.post("/v1/chat/completions/input_tokens", json={"messages": messages}).json()
    assert counted["input_tokens"] == answer.usage.prompt_tokens
    assert asked == ["/a.png"] * 5
    for wrong in (f"https://{HOST}/page", "https://other.example/a.png", f"http://{HOST}/a.png", "file:///etc/passwd"):
        for path, body in ways(wrong, {"type": "url", "url": wrong})[:3]:
            assert server.client.post(path, json=body).status_code == 400, (path, wrong)
    assert asked[5:] == ["/page"] * 3


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_the_work_on_its_images(server, monkeypatch, stream):
    """The second image is not decoded, although no token was sent that could have failed."""
    decode, begun, left = base.pixels_of, threading.Event(), []

    def wait_for_its_end(content):
        cancelled = REQUEST_CANCELLED.get()
        begun.set()
        with suppress(CancelledError):
            cancelled.result(PATIENCE)
        left.append(cancelled.cancelled())
        return decode(content)

    monkeypatch.setattr(base, "pixels_of", wait_for_its_end)
    urls = [f"data:image/png;base64,{base64.b64encode(encoded(picture(9, i))).decode()}" for i in (7 + stream, 5)]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    body = json.dumps({"messages": [{"role": "user", "content": parts}], "stream": stream}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with connect(server.url) as connection:
        connection.sendall(head.encode() + body)
        assert begun.wait(PATIENCE)
    wait_until(lambda: left)
    monkeypatch.undo()
    answer = server.client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": parts[:1]}]})
    assert (answer.status_code, left) == (200, [True])


def test_images_have_bounds(server):
    parts = [{"type": "image_url", "image_url": {"url": URL}}]
    many = server.client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": parts * 65}]})
    assert (many.status_code, "more than 64 images" in many.text) == (400, True)
    long = server.client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": parts * 20}]})
    assert (long.status_code, long.json()["error"]["type"]) == (400, "exceed_context_size_error")
    for prompt in ({"prompt_string": "<__media__>", "multimodal_data": [BASE64]}, {"multimodal_data": [BASE64]}):
        assert server.client.post("/completion", json={"prompt": prompt}).status_code == 400


def test_a_model_without_a_projector_says_so(path):
    with serving(ModelSpec(["blind"], str(path), {**OPTIONS, "mmproj": "off"})) as blind:
        for route, body in ways(URL, SOURCE):
            response = blind.client.post(route, json=body)
            assert response.status_code == 400, (route, response.text)
            assert "this model takes no images without a projector" in response.text
            assert str(path.parent) not in response.text
        assert blind.client.get("/props").json()["modalities"]["vision"] is False
