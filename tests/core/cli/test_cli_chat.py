"""``pumice chat``: piped, in a session, and at a real terminal."""

import base64
import itertools
import json
import os
import re
import select
import signal
import sys
import time

import click
import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import pumice
from pumice import PumiceError
from pumice.cli.chat import sessions
from pumice.cli.chat.clipboard import choose_text, code_blocks
from pumice.cli.chat.conversation import Conversation
from pumice.cli.chat.editor import Editor
from pumice.cli.chat.models import ChatModel, switchable_files
from pumice.cli.chat.session import HELP, Session
from pumice.cli.chat.shown import Shown
from pumice.cli.named_models import warn_of_assumed_template

OPTIONS = {"chat_template": "plain", "max_tokens": 6, "temperature": 0}


@pytest.fixture(scope="module")
def demo():
    with pumice.load(backend="numpy") as model:
        yield model


@pytest.fixture
def chat(demo, capfdbinary):
    """Run a session over lines; the conversation, what it wrote and what it said. A line may be an exception."""

    def chat(*lines, stats=False, **options):
        conversation = Conversation(demo, {**OPTIONS, **options})
        coming = iter([*lines, EOFError()])

        def read() -> str:
            line = next(coming)
            if isinstance(line, BaseException):
                raise line
            return line

        Session(conversation, read, stats).run()
        stdout, stderr = capfdbinary.readouterr()
        return conversation, stdout.decode(), stderr.decode()

    return chat


def test_piped_input_is_one_message(run, demo):
    done = run("chat", "-n", "6", "--temp", "0", "--backend", "numpy", "--stats", input="Once upon a time\n")
    assert done.returncode == 0
    assert done.stdout == demo.generate("Once upon a time", max_tokens=6, temperature=0).text
    assert re.fullmatch(r"prompt 5 tokens, 0 of them cached · answer 6 tokens, [\d.]+ tokens/s\n", done.stderr)


def test_the_template_and_the_system_message_are_options(run, home, demo):
    (home / "own.jinja").write_text("{% for m in messages %}({{ m.role }}: {{ m.content }}){% endfor %}")
    options = ["-n", "6", "--temp", "0", "--backend", "numpy", "-s", "Be kind."]
    expected = demo.generate("(system: Be kind.)(user: Hi)", max_tokens=6, temperature=0).text
    assert run("chat", *options, "--chat-template-file", "own.jinja", input="Hi").stdout == expected
    done = run("chat", *options, "--chat-template", "chatlm", input="Hi")
    assert (done.returncode, done.stdout) == (1, "")
    assert "unknown chat template 'chatlm'; did you mean" in done.stderr


def test_the_default_effort_of_reasoning_is_that_of_the_template(run, demo):
    prompts = {"low": "Once upon a time", "default": "Tom and Mia", "unset": "The old dog"}
    expected = {effort: demo.generate(prompt, max_tokens=6, temperature=0).text for effort, prompt in prompts.items()}
    assert len(set(expected.values())) == 3
    template = f"{{{{ {prompts}[reasoning_effort | default('unset')] }}}}"
    options = ["-n", "6", "--temp", "0", "--backend", "numpy", "--chat-template", template]
    assert run("chat", *options, input="Hi").stdout == expected["unset"]
    assert run("chat", *options, "--reasoning-effort", "low", input="Hi").stdout == expected["low"]
    assert run("chat", *options, "--reasoning-effort", "default", input="Hi").stdout == expected["unset"]


def test_the_first_message_is_an_option_too(run, home, demo):
    options = ["-n", "6", "--temp", "0", "--backend", "numpy"]
    expected = demo.generate("Once upon a time", max_tokens=6, temperature=0).text
    (home / "first.txt").write_text("Once upon a time\n")
    assert run("chat", "-p", "Once upon a time", *options).stdout == expected
    assert run("chat", "-f", "first.txt", *options).stdout == expected
    assert run("chat", "-f", "-", *options, input="Once upon a time\n").stdout == expected
    assert run("chat", "-st", "-p", "Once upon a time", *options, input=None).stdout == expected
    assert run("chat", "-e", "-p", r"Once\x20upon a time", *options).stdout == expected
    done = run("chat", "pumice-demo", "Once", "-p", "Once", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert "two messages: one as MESSAGE and one with -p or -f" in done.stderr


def test_the_system_message_is_read_from_a_file(run, home, demo):
    (home / "own.jinja").write_text("{% for m in messages %}({{ m.role }}: {{ m.content }}){% endfor %}")
    (home / "system.txt").write_text("Be kind.\n")
    options = ["-n", "6", "--temp", "0", "--backend", "numpy", "--chat-template-file", "own.jinja"]
    expected = demo.generate("(system: Be kind.)(user: Hi)", max_tokens=6, temperature=0).text
    assert run("chat", "-sysf", "system.txt", *options, input="Hi").stdout == expected
    done = run("chat", "-sysf", "system.txt", "-sys", "x", *options, input="Hi")
    assert "give either --system-prompt or --system-prompt-file" in done.stderr
    assert "cannot read the system message: no.txt: No such file" in run("chat", "-sysf", "no.txt", input="Hi").stderr


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
    assert run("chat", input=b"\xff").stderr.startswith("error: the message is not UTF-8: byte 0")


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
    assert "unknown command '/sav'; did you mean '/save'" in chat("/sav x")[2]
    help = chat("/help")[2]
    assert all(name in help for name in HELP)
    assert "ends in .json" in help
    assert chat("/exit", "Once")[0].messages == chat("/exit now", "Once")[0].messages == []


def test_options_are_set_and_unset(chat):
    conversation, _, stderr = chat("/set max_tokens 2", "/set stop [x]", "/set", "/set stop", "Once")
    assert (conversation.options["max_tokens"], "stop" in conversation.options) == (2, False)
    assert "stop ['x']" in stderr
    assert "not valid YAML" in chat("/set x [")[2]


def test_a_wrong_option_is_refused_and_changes_nothing(chat):
    conversation, stdout, stderr = chat("/set temprature 3", "/set temperature hot", "/set top_p 7", "Once upon a time")
    assert "unknown option 'temprature'; did you mean 'temperature'?" in stderr
    assert "temperature must be a number" in stderr
    assert "top_p must be a number" in stderr
    assert conversation.options == OPTIONS
    assert stdout


def test_commands_say_what_they_did(chat, tmp_path):
    path = tmp_path / "chat.json"
    _, _, stderr = chat(
        "/undo", "Once", f"/save {path}", "/undo", f"/load {path}", "/set top_k 3", "/set", "/stats", "/reset"
    )
    said = stderr.splitlines()
    for line in (
        "there is no message to take back",
        f"saved 2 messages to {path}",
        "taken back: 'Once'",
        f"loaded 2 messages from {path}",
        "top_k 3",
        "top_p 0.95",
        "statistics are shown after each answer",
        "the conversation is forgotten",
    ):
        assert line in said, line


def test_statistics_are_shown_on_request(chat):
    assert "tokens/s" not in chat("Once")[2]
    assert chat("/stats", "Once")[2].count("tokens/s") == 1
    assert chat("Once", stats=True)[2].count("tokens/s") == 1


def test_a_conversation_is_kept_in_a_file(chat, tmp_path):
    path = tmp_path / "a chat.json"
    saved, *_ = chat("/system Be kind.", "Once", f"/save {path}")
    assert json.loads(path.read_text()) == {"messages": saved.messages}
    assert list(tmp_path.iterdir()) == [path]
    assert chat(f"/load {path}")[0].messages == saved.messages
    path.write_text(json.dumps([{"role": "user", "content": "Hi"}]))
    assert chat(f"/load {path}")[0].messages == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not a conversation"),
        ("{}", "is not a conversation"),
        ('[{"role": 3}]', "is not a conversation"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_no_conversation_changes_nothing(chat, tmp_path, text, problem):
    path = tmp_path / "file"
    if text is not None:
        path.write_text(text)
    conversation, _, stderr = chat("Once", f"/load {path}")
    assert problem in stderr
    assert len(conversation.messages) == 2


def test_a_conversation_without_messages_is_kept_in_a_file(chat, tmp_path):
    path = tmp_path / "empty.json"
    conversation, _, stderr = chat(f"/save {path}", f"/save {path}", "Once", f"/load {path}")
    assert "error" not in stderr
    assert conversation.messages == []


def test_a_file_that_cannot_be_written_says_so(chat, tmp_path):
    assert "cannot be written" in chat(f"/save {tmp_path / 'no' / 'folder.json'}")[2]
    assert "that end in .json; use folder.json" in chat(f"/save {tmp_path / 'folder'}")[2]
    (tmp_path / "settings.json").write_text('{"mine": 1}')
    assert "exists, and is not a conversation" in chat(f"/save {tmp_path / 'settings.json'}")[2]
    assert "name a file" in chat("/save")[2]


def test_an_error_takes_the_message_back(chat, demo):
    conversation, _, stderr = chat("x " * 5000, KeyboardInterrupt(), "Once")
    assert "--ctx-size is" in stderr
    assert len(conversation.messages) == 2


def test_an_error_after_some_text_has_a_line_of_its_own(chat, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(pumice.ChatStream, "__next__", failing_at(3, pumice.ChatStream.__next__))
    _, stdout, stderr = chat("Once")
    assert stderr.count("error: enough") == 1
    assert len(stdout.strip()) > 0
    assert stdout.endswith("\n")


def failing_at(n, call):
    count = itertools.count()

    def failing(self):
        if next(count) == n:
            raise pumice.RequestError("enough")
        return call(self)

    return failing


def typed(keys: str) -> list[str]:
    lines = []
    with create_pipe_input() as keyboard:
        editor = Editor(keyboard, DummyOutput())
        keyboard.send_text(keys)
        try:
            while True:
                lines.append(editor.read())
        except (EOFError, KeyboardInterrupt) as end:
            lines.append(type(end).__name__)
    return lines


def test_lines_are_edited(home):
    assert typed("one\rtwo\x04\r\x04") == ["one", "two", "EOFError"]
    assert typed("a\\\rb\r\x04") == ["a\nb", "EOFError"]
    assert typed("a\x1b\rb\r\x04") == ["a\nb", "EOFError"]
    assert typed("lost\x03") == ["KeyboardInterrupt"]


def test_the_history_is_kept(home, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    assert typed("remember me\r\x04")[0] == "remember me"
    assert (home / "state" / "pumice" / "chat_history").stat().st_mode & 0o077 == 0
    assert typed("\x1b[A\r\x04")[0] == "remember me"


def test_without_a_place_for_it_the_history_is_in_memory(home, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "file"))
    assert typed("one\r\x04") == ["one", "EOFError"]


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


def test_messages_are_changed_and_taken_back(chat, demo):
    conversation, _, stderr = chat("One day", "And then", "/edit But then", "/retry")
    assert [m["content"] for m in conversation.messages if m["role"] == "user"] == ["One day", "But then"]
    assert len(conversation.messages) == 4
    assert "there is no message to change" in chat("/edit x")[2]
    conversation, _, stderr = chat("Once", "/edit")
    assert "give the new text: /edit TEXT" in stderr
    assert len(conversation.messages) == 2
    conversation, _, stderr = chat("Once", "/edit " + "x " * 5000)
    assert "--ctx-size is" in stderr
    assert conversation.messages[0]["content"] == "Once"
    assert chat("One", "Two", "Three", "/undo 2")[0].messages[0]["content"] == "One"
    assert len(chat("One", "Two", "/undo 9")[0].messages) == 0
    assert "at least 1, not 'x'" in chat("/undo x")[2]


CODE = "First:\n\n```python\nprint(1)\n```\n\n- then\n  ~~~~\n  ```\n  ~~~~\n\nand\n\n```\nunfinished"


def test_copied_parts_of_an_answer():
    assert code_blocks(CODE) == ["print(1)\n", "```\n", "unfinished"]
    assert [choose_text(CODE, choice) for choice in ("", "1", "all")] == ["unfinished", "print(1)\n", CODE]
    assert choose_text("no code", "") == "no code"
    for text, choice, problem in ((CODE, "4", "has 3 blocks"), ("no", "1", "has no block"), (CODE, "x", "not 'x'")):
        with pytest.raises(PumiceError, match=problem):
            choose_text(text, choice)


def test_the_terminal_copies(chat, monkeypatch):
    conversation, stdout, stderr = chat("Once", "/copy")
    assert "/copy needs a terminal" in stderr
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("pumice.cli.chat.session.shown", lambda _: Shown())
    conversation, stdout, stderr = chat("Once", "/copy")
    copied = re.search("\x1b]52;c;([A-Za-z0-9+/=]+)\x07", stdout)
    assert copied
    assert base64.b64decode(copied[1]).decode() == conversation.messages[-1]["content"]
    assert "copied 1 line" in stderr
    assert "there is no answer to copy" in chat("/copy")[2]
    monkeypatch.setattr("pumice.cli.chat.clipboard.MAX_BYTES", 3)
    assert "terminals take 3" in chat("Once", "/copy")[2]


def test_a_conversation_is_kept_and_resumed(demo, home, monkeypatch, capfdbinary, run):
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    sessions.make_sessions_folder()
    for lines, name, expected in (
        (["Once"], "last", {"last"}),
        (["Once", "/name fox", "And then"], "last", {"last", "fox"}),
        (["/name ../x", "/name fox", "/undo"], "last", {"last", "fox"}),
    ):
        coming = iter(lines)
        Session(Conversation(demo, OPTIONS), lambda coming=coming: next(coming, None) or end(), name=name).run()
        assert {path.stem for path in (home / "pumice" / "chats").iterdir()} == expected
    assert len(sessions.read_session("fox")) == 4
    assert "is no name of a conversation" in capfdbinary.readouterr()[1].decode()
    coming = iter(["/name", "/name hare", "/name"])
    Session(Conversation(demo, OPTIONS), lambda: next(coming, None) or end()).run()
    shown = capfdbinary.readouterr()[1].decode()
    assert "this conversation is not kept\nkept conversations: " in shown
    assert "this conversation is kept as hare\n" in shown
    assert sorted(sessions.session_names()) == ["fox", "last"]
    done = run("chat", "--resume", "fox", "-n", "1", "--backend", "numpy", input="And")
    assert done.returncode == 0, done.stderr
    assert [message["content"] for message in sessions.read_session("fox")][-2] == "And"
    missing = run("chat", "--resume", "hare", "--backend", "numpy", input="And")
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert "no conversation is kept as 'hare'" in missing.stderr


def test_resuming_before_the_first_conversation_says_that_none_is_kept(home, monkeypatch, run):
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    missing = run("chat", "--resume", "--backend", "numpy", input="And")
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert f"no conversation is kept in {home / 'pumice' / 'chats'} yet" in missing.stderr


def test_another_model_goes_on_with_the_conversation(demo, model, capfdbinary):
    options = {"backend": "numpy", "draft": None, "config": {"adapters": {}, "chat_template": "plain"}}
    coming = iter(["Once", f"/model {model}", "And then", "/model nowhere", "/model", "And now?"])
    with click.Context(click.Command("chat"), info_name="chat"), ChatModel("pumice-demo", options) as chat_model:
        first = chat_model.model
        conversation = Conversation(first, dict(OPTIONS))
        Session(conversation, lambda: next(coming, None) or end(), chat_model=chat_model).run()
        assert chat_model.name == str(model)
        assert conversation.model is chat_model.model is not first
        assert len(conversation.messages) == 6
        assert conversation.options["chat_template"] == "chatml"
        with pytest.raises(pumice.ModelClosedError):
            first.generate("x")
    stderr = capfdbinary.readouterr()[1].decode()
    assert "nowhere" in stderr
    assert stderr.count(f"{model} on numpy") == 2


def test_a_model_that_cannot_be_loaded_leaves_the_earlier_one(demo, tmp_path):
    wrong = tmp_path / "wrong.gguf"
    wrong.write_bytes(b"GGUF")
    with click.Context(click.Command("chat"), info_name="chat"), ChatModel("pumice-demo", {"backend": "numpy"}) as chat:
        with pytest.raises(PumiceError):
            chat.switch(str(wrong))
        assert chat.name == "pumice-demo"
        assert chat.model.generate("Once", max_tokens=1).text


def end() -> str:
    raise EOFError


def test_a_chat_may_read_the_files_of_entries(home, tmp_path, monkeypatch):
    """A project's entries count as the user's do; ``load_config`` checks what they name. Other folders do not."""
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    files = [folder / f"{name}.gguf" for folder in (project, elsewhere) for name in ("model", "mmproj")]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.touch()
    user = tmp_path / "xdg" / "pumice" / "config.yaml"
    user.parent.mkdir(parents=True, exist_ok=True)
    entries = {"mine": {"model": str(files[2])}, "all": {"model": str(elsewhere)}}
    user.write_text(json.dumps({"models": entries}))
    theirs = {"here": {"model": str(project)}, "own": {"model": "model.gguf"}}
    (project / "pumice.yaml").write_text(json.dumps({"models": theirs}))
    monkeypatch.chdir(project)
    assert sorted(switchable_files()) == sorted(map(str, files))


def test_a_created_model_brings_its_beginning(demo, home, capfdbinary):
    from pumice.hub.created import create_model

    chat = {"system": "You are a fox.", "stop": ["THE END"], "max_tokens": 3}
    create_model("fox", {"model": "pumice-demo", "chat": {**chat, "messages": [{"role": "user", "content": "Hi"}]}})
    create_model("hare", {"model": "pumice-demo", "chat": {"system": "You are a hare."}})
    coming = iter(["/model fox", "Once", "/model hare", "/system Mine", "/set max_tokens 2", "/model fox"])
    with (
        click.Context(click.Command("chat"), info_name="chat"),
        ChatModel("pumice-demo", {"backend": "numpy"}) as model,
    ):
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
