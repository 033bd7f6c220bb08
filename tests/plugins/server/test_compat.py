"""``--compat llama-server``, and what of llama-server's command line holds without it."""

import json
import logging

import httpx2
import pytest

import pumice
from gguf_files import tiny_llama
from pumice.cli.named_models import warn_of_assumed_template
from pumice_server.command.beginning import listen
from pumice_server.command.defaults import take_compat
from pumice_server.command.environment import predict_route
from pumice_server.command.serve import command
from pumice_server.command.serving import addresses
from pumice_server.settings import Settings
from server_thread import Running, running

CHAT = {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 3, "temperature": 0}
VERTEX = {**CHAT, "@requestFormat": "chatCompletions"}
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "Authorization"}


@pytest.fixture(scope="module")
def compat(model):
    with running(model, compat=True, verbose=True, predict_route="/predict", metrics=False, slots=False) as server:
        yield server


def parsed(line: str) -> dict:
    return command.make_context("serve", line.split()).params


@pytest.mark.parametrize(
    ("line", "n_ctx"),
    [
        ("--compat llama-server -c 512 -np 2", 256),
        ("--compat llama-server -c 512 -np 2 --kv-unified", 512),
        ("--compat llama-server -c 512 -np -1", 512),
        ("--compat llama-server -c 512", 512),
        ("--compat llama-server -np 2", None),
        ("-c 512 -np 2", 512),
    ],
)
def test_the_context_is_divided_over_slots(line, n_ctx):
    options = parsed(line)
    assert take_compat(options) == ("--compat" in line)
    assert options["n_ctx"] == n_ctx
    assert options["random"] == ({"rng": "mt19937"} if "--compat" in line else {})


def test_options_of_the_peer():
    options = parsed("--no-webui --no-slots --host ::1 --host 127.0.0.1")
    assert (options["host"], options["page"], options["slots"]) == (("::1", "127.0.0.1"), False, False)


def test_several_addresses_with_one_port():
    settings = Settings(host="127.0.0.1, 127.0.0.2", port=0)
    assert settings.is_loopback
    assert not Settings(host="127.0.0.1,0.0.0.0").is_loopback
    with listen(settings) as sockets:
        ports = {socket.getsockname()[1] for socket in sockets}
        assert (len(sockets), len(ports)) == (2, 1)
        port = ports.pop()
        assert addresses(settings, sockets) == f"http://127.0.0.1:{port}, http://127.0.0.2:{port}"


def test_names_and_numbers_of_the_peer(model, compat, server):
    assert compat.client.post("/v1/chat/completions", json=CHAT).json()["system_fingerprint"].startswith("b0-pumice")
    assert server.client.post("/v1/chat/completions", json=CHAT).json()["system_fingerprint"].startswith("pumice-")
    with running(model, compat=True) as other:
        for _ in range(2):
            told = other.client.post("/completion", json={"prompt": "Once upon", "n_predict": 4}).json()["timings"]
        metrics, again = (other.client.get("/metrics") for _ in range(2))
        assert int(metrics.headers["Process-Start-Time-Unix"]) > 0
        texts = (answer.text.splitlines() for answer in (metrics, again))
        values, later = (dict(line.split() for line in lines if not line.startswith("#")) for lines in texts)
        assert float(values["llamacpp:tokens_predicted_total"]) == 2 * told["predicted_n"]
        assert float(values["llamacpp:predicted_tokens_seconds"]) > 0
        assert later["llamacpp:predicted_tokens_seconds"] == "0"  # nothing since the last scrape
        assert int(values["llamacpp:n_tokens_max"]) == told["prompt_n"] + told["cache_n"] + 4


def test_each_event_of_a_completion_has_a_token(compat):
    body = {"prompt": "Once", "n_predict": 6, "n_probs": 2, "stream": True, "ignore_eos": True}
    lines = compat.client.post("/completion", json=body).text.splitlines()
    parts = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    assert [len(part["completion_probabilities"]) for part in parts[:-1]] == [1] * 6


def test_pages_of_this_machine_may_ask_where_no_key_is_needed(compat, model):
    for origin in ("http://localhost:3000", "http://127.0.0.1", "http://[::1]:1"):
        told = compat.client.options("/v1/completions", headers={**PREFLIGHT, "Origin": origin})
        assert (told.status_code, told.headers["access-control-allow-origin"]) == (200, origin)
        assert compat.client.get("/v1/models", headers={"Origin": origin}).status_code == 200
    for origin in ("http://localhost.evil.example", "http://notlocalhost", "https://evil.example", "null"):
        told = compat.client.options("/v1/completions", headers={**PREFLIGHT, "Origin": origin})
        assert told.status_code == 200
        assert "access-control-allow-origin" not in told.headers
        assert compat.client.get("/v1/models", headers={"Origin": origin}).status_code == 403
    with running(model, origins=["localhost"]) as named:
        for origin, status in (("http://localhost:3000", 200), ("http://localhost.evil.example", 403)):
            assert named.client.get("/v1/models", headers={"Origin": origin}).status_code == status


def predict(server: Running, *instances: object) -> httpx2.Response:
    return server.client.post("/predict", json={"instances": list(instances)})


def test_predictions_of_vertex(compat):
    done = predict(compat, VERTEX, VERTEX | {"n": 2}).json()["predictions"]
    assert [len(each["choices"]) for each in done] == [1, 2]
    alone = compat.client.post("/v1/chat/completions", json=CHAT).json()
    assert done[0]["choices"][0]["message"] == alone["choices"][0]["message"]
    assert predict_route({}) is None
    assert predict_route({"AIP_MODE": "PREDICTION", "AIP_PREDICT_ROUTE": "/x"}) == "/x"


@pytest.mark.parametrize(
    ("instance", "said"),
    [
        (CHAT, "@requestFormat"),
        (1, "instances[1] must be an object"),
        (VERTEX | {"stream": True}, "not streamed"),
        (VERTEX | {"temperature": "x"}, "temperature"),
        (VERTEX | {"messages": []}, "messages"),
        (VERTEX | {"model": "another"}, "instances[1].model"),
    ],
)
def test_predictions_that_are_wrong(compat, instance, said):
    answer = predict(compat, VERTEX, instance)
    assert (answer.status_code, said in answer.json()["error"]["message"]) == (400, True)


def test_chats_of_a_file_without_a_template_take_chatml(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("pumice"), "propagate", True)
    warn_of_assumed_template.cache_clear()
    with pumice.load(tiny_llama(tmp_path / "untaught.gguf"), backend="numpy") as model, running(model) as server:
        assert {record.message for record in caplog.records if "no chat template" in record.message} == {
            "demo: the file has no chat template: chats use ChatML; --chat-template names another (see docs/chat.md)"
        }
        asked = server.client.post("/apply-template", json=CHAT).json()["prompt"]
        assert asked == model.template.apply(CHAT["messages"], chat_template="chatml")
        assert server.client.post("/v1/chat/completions", json=CHAT).status_code == 200
        assert server.client.get("/props").json()["chat_template_caps"]["supports_system_role"]
        with pytest.raises(pumice.NoChatTemplateError):
            model.chat(CHAT["messages"])


def test_two_answers_at_the_end_are_refused_as_by_the_peer(compat, server):
    ended = {**CHAT, "messages": [*CHAT["messages"], *[{"role": "assistant", "content": "a"}] * 2]}
    assert compat.client.post("/v1/chat/completions", json=ended).status_code == 400
    assert server.client.post("/v1/chat/completions", json=ended).status_code == 200


def test_most_tokens_of_the_server_are_a_bound_and_with_compat_a_default(model):
    for compat, counts in ((False, [4, 4]), (True, [4, 8])):
        with running(model, compat=compat, max_tokens=4) as server:
            for asked, count in zip(({}, {"n_predict": 8}), counts, strict=True):
                body = {"prompt": "Once upon a time", "ignore_eos": True, **asked}
                told = server.client.post("/completion", json=body).json()
                assert (told["tokens_predicted"], told["generation_settings"]["n_predict"]) == (count, count)
                assert {entry["bias"] for entry in told["generation_settings"]["logit_bias"]} == {None}
