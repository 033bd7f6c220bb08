"""``pumice chat``: piped, in a session, and at a real terminal."""

import json
import os
import re
import select
import signal
import sys
import time

import click
import pytest

import pumice
from pumice.cli.chat import sessions
from pumice.cli.chat.conversation import Conversation
from pumice.cli.chat.files import read_conversation
from pumice.cli.chat.models import ChatModel
from pumice.cli.chat.session import HELP, Session
from pumice.cli.named_models import warn_of_assumed_template

OPTIONS = {"chat_template": "plain", "max_tokens": 6, "temperature": 0}


@pytest.fixture(scope="module")
def demo():
    with pumice.load(backend="numpy") as model:
        yield model


@pytest.fixture
def chat(demo, session):
    """Run a session over lines; the conversation, what it wrote and what it said."""

    def chat(*lines, stats=False, **options):
        conversation = Conversation(demo, {**OPTIONS, **options})
        return conversation, *session(conversation, *lines, stats=stats)

    return chat


def test_piped_input_is_one_message(run, demo):
    done = run("chat", "-n", "6", "--temp", "0", "--backend", "numpy", "--stats", input="Once upon a time\n")
    assert done.returncode == 0
    assert done.stdout == demo.generate("Once upon a time", max_tokens=6, temperature=0).text
    assert re.fullmatch(r"prompt 5 tokens, 0 of them cached · answer 6 tokens, [\d.]+ tokens/s\n", done.stderr)


@pytest.mark.parametrize("arguments", [["-m", "missing.gguf"], ["-p", ""]])
def test_no_message_is_refused_before_the_model_is_read(run, arguments):
    done = run("chat", *arguments, input="\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: no message: give one with -p TEXT or -f FILE, or pipe it in" in done.stderr


def test_answers_have_a_form_a_stop_string_and_images(run, home):
    pillow = pytest.importorskip("PIL.Image")
    assert run("chat", "-j", '{"enum": [true]}', "--backend", "numpy", input="Is it?").stdout == "true"
    text = run("chat", "-n", "6", "--temp", "0", "--backend", "numpy", input="Once upon a time").stdout
    stop = text[3:6]
    options = ["-n", "6", "--temp", "0", "--backend", "numpy", "-r", stop]
    assert run("chat", *options, input="Once upon a time").stdout == text.partition(stop)[0]
    pillow.new("RGB", (64, 64), "red").save(home / "red.png")
    options = ["-n", "8", "--temp", "0", "--backend", "numpy"]
    shown = run("chat", "--image", "red.png", *options, input="What is this?")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout != run("chat", "pumice-demo-vision", *options, input="What is this?").stdout
    assert "is no file: addresses are not fetched" in run("chat", "--image", "https://x.org/a.png", input="x").stderr


def test_a_session_begins_with_a_message_and_may_end_after_an_answer(demo, capfdbinary):
    def messages(lines: list[str], first: str | None, is_single: bool) -> list[str]:
        coming = iter(lines)
        conversation = Conversation(demo, OPTIONS)
        Session(conversation, lambda: next(coming, None) or end()).run(first, is_single)
        assert (next(coming, None) is not None) == is_single
        return [message["content"] for message in conversation.messages if message["role"] == "user"]

    assert messages(["Two"], "/One\ntwo", False) == ["/One\ntwo", "Two"]
    assert b">>> /One\n... two\n" in capfdbinary.readouterr().err
    assert messages(["/help", "Two", "Three"], None, True) == ["Two"]


def test_a_model_without_a_template_takes_chatml_and_says_so(run, model):
    warn_of_assumed_template.cache_clear()  # another test may have asked this model
    options = ["--backend", "numpy", "-n", "4", "--temp", "0"]
    done = run("chat", model, *options, input="Hi")
    assert done.returncode == 0
    assert done.stderr.count("has no chat template: chats use ChatML; --chat-template names another") == 1
    named = run("chat", model, *options, "--chat-template", "chatml", input="Hi")
    assert (named.stdout, named.stderr) == (done.stdout, "")
    assert run("chat", input=b"\xff").stderr.startswith("error: standard input: not UTF-8: byte 0")


def test_answers_go_to_stdout_and_stay_in_the_conversation(chat, demo):
    conversation, stdout, stderr = chat("Once upon a time", "", "  And then  ")
    first = demo.generate("Once upon a time", max_tokens=6, temperature=0).text
    assert conversation.messages[0] == {"role": "user", "content": "Once upon a time"}
    assert conversation.messages[1] == {"role": "assistant", "content": first}
    assert [message["role"] for message in conversation.messages] == ["user", "assistant", "user", "assistant"]
    assert conversation.messages[2]["content"] == "And then"
    assert stdout == first + conversation.messages[3]["content"]
    assert "error" not in stderr


def test_commands(chat):
    conversation, _, stderr = chat("/system Be kind.", "Once", "/reset", "/system")
    assert conversation.messages == [{"role": "system", "content": "Be kind."}]
    assert stderr.count("Be kind.") == 2
    assert chat("/system Be kind.", "/system -", "/system")[0].messages == []
    assert chat("Once", "/undo")[0].messages == []
    assert [message["role"] for message in chat("Once", "/regen")[0].messages] == ["user", "assistant"]
    assert "there is no message" in chat("/regen")[2]
    for kind, noun in {"image": "images", "audio": "sound", "video": "video"}.items():
        assert f"error: this model takes no {noun} without a projector" in chat(f"/{kind} no.file")[2]
    assert "unknown command '/sav'; did you mean '/save'" in chat("/sav x")[2]
    help = chat("/help")[2]
    assert all(name in help for name in HELP)
    assert "ends in .json" in help
    assert all(chat(end, "Once")[0].messages == [] for end in ("/exit", "/exit now", "/bye", "/quit"))
    assert chat("/")[2] == help


def test_a_space_a_path_or_a_comment_begins_a_message(chat):
    messages = chat(" /exit", "/usr/bin is", "/* A\n * comment */")[0].messages[::2]
    assert [message["content"] for message in messages] == ["/exit", "/usr/bin is", "/* A\n * comment */"]


def test_a_wrong_option_is_refused_and_changes_nothing(chat):
    lines = ["/set temprature 3", "/set temperature hot", "/set top_p 7", "/set foo 1", "Once upon a time"]
    conversation, stdout, stderr = chat(*lines)
    assert "error: unknown option 'foo'; /set lists the usual ones\n" in stderr
    assert "unknown option 'temprature'; did you mean 'temperature'?" in stderr
    assert "temperature must be a number" in stderr
    assert "top_p must be a number" in stderr
    assert conversation.options == OPTIONS
    assert stdout


def test_an_option_without_a_value_is_as_the_chat_began(chat):
    changes = ["/set temperature 2", "/set max_tokens 1", "/set seed 3"]
    conversation, _, stderr = chat(*changes, *(change.rpartition(" ")[0] for change in changes))
    assert conversation.options == OPTIONS
    assert "temperature is as the chat began: 0\nmax_tokens is as the chat began: 6\nseed is" in stderr


def test_options_are_set_by_words_of_ollama_and_json(chat):
    lines = [
        "/set system Be kind.",
        "/set parameter seed 3",
        "/set parameter num_predict 4",
        "/set parameter num_ctx 64",
        '/set parameter stop [INST] "a b" 3',
        "/set nothink",
        '/set logit_bias {"5": -1}',
        "/set verbose",
    ]
    conversation, _, stderr = chat(*lines, "Once")
    assert conversation.system == "Be kind."
    options = {"seed": 3, "max_tokens": 4, "n_ctx": 64, "reasoning": False, "logit_bias": {5: -1}}
    assert conversation.options == {**OPTIONS, **options, "stop": ["[INST]", "a b", "3"]}
    assert "answer 4 tokens" in stderr


def test_an_error_takes_the_message_back(chat, demo):
    conversation, _, stderr = chat("x " * 5000, KeyboardInterrupt(), "Once")
    assert "--ctx-size is 512: it exceeds the available context size; /undo N takes back" in stderr
    assert len(conversation.messages) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_ctrl_c_stops_an_answer_and_not_the_program(home):
    """The process is confined where the system can: it keeps its history, and another process saves and loads."""
    import pty

    process, terminal = pty.fork()
    if process == 0:
        os.environ["XDG_STATE_HOME"] = str(home)
        os.execv(sys.executable, [sys.executable, "-m", "pumice", "chat", "--backend", "numpy", "--seed", "1"])

    seen = b""

    def wait(text: bytes) -> None:
        """Read on until after ``text``."""
        nonlocal seen
        end = time.monotonic() + 60
        while text not in seen:
            assert time.monotonic() < end, seen
            if select.select([terminal], [], [], 1)[0]:
                seen += os.read(terminal, 1 << 16)
        seen = seen.partition(text)[2]

    try:
        wait(b">>>")
        os.write(terminal, b"/set ignore_eos true\r")
        wait(b">>>")
        wait(b">>>")  # as it was sent, and the next
        os.write(terminal, b"Once upon a time, there was a fox\r")
        wait(b" the ")
        os.write(terminal, b"\x03")
        wait(b">>>")
        os.write(terminal, f"/save {home / 'talk.json'}\r".encode())
        wait(b"saved ")
        os.write(terminal, f"/load {home / 'talk.json'}\r".encode())
        wait(b"loaded ")
        wait(b">>>")
        os.write(terminal, b"/model pumice-demo-vision\r")
        wait(b"pumice-demo-vision on numpy")
        wait(b">>>")
        os.write(terminal, b"/exit\r")
        while select.select([terminal], [], [], 60)[0]:
            try:
                os.read(terminal, 1 << 16)
            except OSError:  # its end
                break
        end = time.monotonic() + 60
        while (ended := os.waitpid(process, os.WNOHANG)) == (0, 0):
            assert time.monotonic() < end
            time.sleep(0.01)
        assert ended == (process, 0)
        assert json.loads((home / "talk.json").read_text())["messages"]
        assert "Once upon a time, there was a fox" in (home / "pumice" / "chat_history").read_text()
    except BaseException:
        os.kill(process, signal.SIGKILL)
        raise
    finally:
        os.close(terminal)


def test_a_conversation_is_kept_and_resumed(demo, home, monkeypatch, session, run):
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    sessions.make_sessions_folder()
    for lines, name, expected in (
        (["Once"], "last", {"last"}),
        (["Once", "/name fox", "And then"], "last", {"last", "fox"}),
        (["/name ../x", "/name fox", "/undo"], "last", {"last", "fox"}),
    ):
        _, shown = session(Conversation(demo, OPTIONS), *lines, name=name)
        assert {path.stem for path in (home / "pumice" / "chats").iterdir()} == expected
    assert len(sessions.read_session("fox")) == 4
    assert "is no name of a conversation" in shown
    _, shown = session(Conversation(demo, OPTIONS), "/name", "/name hare", "/name")
    assert "this conversation is not kept\nkept conversations: " in shown
    assert "this conversation is kept as hare\n" in shown
    assert sorted(sessions.session_names()) == ["fox", "last"]
    done = run("chat", "--resume", "fox", "-n", "1", "--backend", "numpy", input="And")
    assert done.returncode == 0, done.stderr
    assert [message["content"] for message in sessions.read_session("fox")][-2] == "And"
    before = sessions.read_session("fox")
    path = home / "talk.json"
    path.write_text(json.dumps([{"role": "user", "content": "Hello"}]))
    for begin in ("/reset", f"/load '{path}'"):  # another conversation, which does not take the place of this one
        conversation = Conversation(demo, OPTIONS, messages=before)
        _, shown = session(conversation, begin, "Once", name="fox")
        assert "fox stays as it was" in shown
        assert sessions.read_session("fox") == before
        assert sessions.read_session("last") == conversation.messages != before
    missing = run("chat", "--resume", "hare", "--backend", "numpy", input="And")
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert "no conversation is kept as 'hare'" in missing.stderr


def test_images_of_kept_messages_become_marks(home, run):
    pytest.importorskip("PIL.Image").new("RGB", (64, 64), "red").save(home / "red.png")
    sessions.make_sessions_folder()
    sessions.write_session("last", [{"role": "user", "content": "Hi"}])
    options = ["--image", "red.png", "--resume", "-n", "2", "--backend", "numpy"]
    done = run("chat", "pumice-demo-vision", *options, input="What is this?")
    assert (done.returncode, done.stderr) == (0, "")
    assert sessions.read_session("last")[1]["content"] == "[image]\nWhat is this?"
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    content = [image, {"type": "text", "text": "Look"}]
    (home / "talk.json").write_text(json.dumps([{"role": "user", "content": content}]))
    assert read_conversation(home / "talk.json") == [{"role": "user", "content": "[image]\nLook"}]


def test_another_model_goes_on_with_the_conversation(demo, model, session):
    options = {"backend": "numpy", "draft": None, "config": {"adapters": {}, "chat_template": "plain"}}
    lines = ["Once", f"/model {model}", "And then", "/model nowhere", "/model", "And now?"]
    with click.Context(click.Command("chat"), info_name="chat"), ChatModel("pumice-demo", options) as chat_model:
        first = chat_model.model
        conversation = Conversation(first, dict(OPTIONS))
        _, stderr = session(conversation, *lines, chat_model=chat_model)
        assert chat_model.name == str(model)
        assert conversation.model is chat_model.model is not first
        assert len(conversation.messages) == 6
        assert conversation.options["chat_template"] == "chatml"
        with pytest.raises(pumice.ModelClosedError):
            first.generate("x")
    assert "nowhere" in stderr
    assert stderr.count(f"{model} on numpy") == 2


def test_another_model_leaves_out_images_that_it_does_not_take(model, tmp_path, session):
    pytest.importorskip("PIL.Image").new("RGB", (64, 64), "red").save(tmp_path / "red.png")
    options = {"backend": "numpy", "draft": None, "config": {"adapters": {}}}
    image = f"/image {tmp_path / 'red.png'}"
    lines = [image, "Once", image, "/model pumice-demo-vision", f"/model {model}", "And now?"]
    with click.Context(click.Command("chat"), info_name="chat"), ChatModel("pumice-demo-vision", options) as chat_model:
        conversation = Conversation(chat_model.model, dict(OPTIONS))
        _, stderr = session(conversation, *lines, chat_model=chat_model)
    said = [each["content"] for each in conversation.messages if each["role"] == "user"]
    assert said == ["[image]\nOnce", "And now?"]
    assert len(conversation.messages) == 4
    assert stderr.count("warning: this model takes no images") == stderr.count("what this chat has is left out") == 1


def end() -> str:
    raise EOFError


def test_a_created_model_brings_its_beginning(demo, home, capfdbinary):
    from pumice.hub.created import create_model

    chat = {"system": "You are a fox.", "stop": ["THE END"], "max_tokens": 3}
    create_model("fox", {"model": "pumice-demo", "chat": {**chat, "messages": [{"role": "user", "content": "Hi"}]}})
    create_model("hare", {"model": "pumice-demo", "chat": {"system": "You are a hare."}})
    coming = iter(["/model fox", "Once", "/model hare", "/system Mine", "/set max_tokens 2", "/model fox"])
    with click.Context(click.Command("chat")), ChatModel("pumice-demo", {"backend": "numpy"}) as model:
        conversation = Conversation(model.model, {"temperature": 0, "chat_template": "plain"})
        seen = []

        def read() -> str:
            options = {name: conversation.options.get(name) for name in ("stop", "max_tokens")}
            seen.append((conversation.system, len(conversation.messages), *options.values()))
            return next(coming, None) or end()

        Session(conversation, read, chat_model=model).run()
    assert seen == [
        (None, 0, None, None),
        ("You are a fox.", 2, ["THE END"], 3),
        ("You are a fox.", 4, ["THE END"], 3),
        ("You are a hare.", 4, None, None),
        ("Mine", 4, None, None),
        ("Mine", 4, None, 2),
        ("Mine", 4, ["THE END"], 2),
    ]
