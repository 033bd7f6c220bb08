"""The plugin in LLM: ``pip install -e '.[test]'`` beside Pumice, then ``pytest``."""

import json

import llm
import llm_pumice
import pytest
from click.testing import CliRunner
from llm.cli import cli

import pumice

PROMPT = "Once upon a time"


@pytest.fixture(autouse=True)
def _home(monkeypatch, tmp_path):
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def story() -> str:
    with pumice.load() as model:
        return model.generate(PROMPT, max_tokens=12, temperature=0).text


def run(*arguments: str) -> str:
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_chats_with_the_demo_model(story):
    assert run("-m", "pumice/demo", PROMPT, "-o", "max_tokens", "12", "-o", "temperature", "0").strip() == story.strip()


def test_models_are_listed():
    listed = run("models")
    assert "pumice/demo" in listed
    from pumice.config import load_config
    from pumice.hub.catalogue import catalogue

    assert all(f"pumice/{name}" in listed for name in catalogue(load_config()))


def test_an_answer_streams_and_is_counted(story):
    response = llm.get_model("pumice/demo").prompt(PROMPT, max_tokens=12, temperature=0)
    chunks = list(response)
    assert "".join(chunks) == story
    assert len(chunks) > 2
    usage = response.usage()
    assert (usage.input, usage.output) == (5, 12)


async def test_an_answer_to_a_coroutine(story):
    model = llm.get_async_model("pumice/demo")
    assert await model.prompt(PROMPT, max_tokens=12, temperature=0).text() == story


def test_a_conversation_goes_on(story):
    conversation = llm.get_model("pumice/demo").conversation()
    first = conversation.prompt(PROMPT, system="Stories.", max_tokens=12, temperature=0)
    assert first.text()
    second = conversation.prompt(" Then", max_tokens=3, temperature=0)
    second.text()
    sent = llm_pumice._messages(second.prompt)
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
    assert sent[2]["content"] == first.text()


class Scripted:
    """Stands in for a model of Pumice: answers with given deltas."""

    def __init__(self, *answers: list[pumice.ChatDelta]) -> None:
        self.answers, self.asked = list(answers), []

    def chat_stream(self, **arguments):
        self.asked.append(arguments)
        return self

    def __enter__(self):
        return iter(self.answers.pop(0))

    def __exit__(self, *_):
        pass


def test_tools_are_called_and_their_results_go_back(monkeypatch):
    def weather(city: str) -> str:
        "The weather of a city"
        return f"sunny in {city}"

    call = pumice.ToolCall("weather", {"city": "Paris"}, "123456789")
    scripted = Scripted(
        [pumice.ChatDelta(reasoning="hm"), pumice.ChatDelta(tool_calls=[call])], [pumice.ChatDelta("Sunny!")]
    )
    monkeypatch.setattr(llm_pumice, "_load", lambda name: scripted)
    assert llm.get_model("pumice/demo").chain("Weather?", tools=[weather]).text() == "Sunny!"
    first, second = scripted.asked
    assert first["tools"][0]["name"] == "weather"
    assert first["tools"][0]["parameters"]["properties"]["city"]["type"] == "string"
    asked, result = second["messages"][-2:]
    assert asked["tool_calls"] == [{"id": "123456789", "function": {"name": "weather", "arguments": {"city": "Paris"}}}]
    assert asked["reasoning"] == "hm"
    assert result == {"role": "tool", "tool_call_id": "123456789", "content": "sunny in Paris"}
    assert json.dumps(second["messages"])


def test_a_schema_is_kept_to():
    schema = {
        "type": "object",
        "properties": {"age": {"enum": [3, 4]}},
        "required": ["age"],
        "additionalProperties": False,
    }
    answer = llm.get_model("pumice/demo").prompt("A goat", schema=schema, max_tokens=200, seed=1).text()
    assert json.loads(answer)["age"] in (3, 4)


def test_what_is_wrong_is_an_error_of_llm():
    with pytest.raises(llm.ModelError, match="tokens"):
        llm.get_model("pumice/demo").prompt("x " * 5000).text()
    done = CliRunner().invoke(cli, ["-m", "pumice/demo", PROMPT, "-o", "temperature", "warm"])
    assert done.exit_code == 1
