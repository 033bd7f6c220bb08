"""The process that keeps conversations for a chat: whatever it is asked, it answers, and goes on."""

import json
import os
import signal
import time

import pytest

import pumice
from pumice.cli.chat import files
from pumice.cli.chat.conversation import Conversation
from pumice.cli.chat.files import read_conversation, read_image, read_sound, read_video
from pumice.errors import PumiceError
from pumice.media.images import MAX_BYTES

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="conversations are kept by a forked process")

SAID = [{"role": "user", "content": "Hi"}]


@pytest.fixture(params=["same process", "other process"])
def kept(request):
    if request.param == "same process":
        yield
        return
    with files.kept_by_other_process():
        yield


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("README.md/x.json", "cannot be written: Not a directory"),
        ("x" * 300 + ".json", "cannot be written: File name too long"),
        ("missing/x.json", "cannot be written: No such file"),
        ("null\0.json", "cannot be written: the path is not valid"),
        ("README.md", "is not a conversation"),
        ("settings.json", "is not a conversation"),
        (".profile", "end in .json"),
        (".", "is not a conversation"),
        ("pipe.json", "is not a conversation"),
    ],
)
def test_a_bad_path_is_an_error_and_the_next_is_written(kept, tmp_path, name, problem):
    (tmp_path / "README.md").write_text("Read me")
    (tmp_path / "settings.json").write_text('{"mine": 1}')
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(PumiceError, match=problem):
        files.write_conversation(tmp_path / name, SAID)
    with pytest.raises(PumiceError):
        files.read_conversation(tmp_path / name)
    files.write_conversation(tmp_path / "good.json", SAID)
    assert files.read_conversation(tmp_path / "good.json") == SAID
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "good.json", "pipe.json", "settings.json"]


@pytest.mark.parametrize("text", ['["sk-secret-123"]', '[{"role": "sk-secret-123"}]', '{"sk-secret'])
def test_an_error_quotes_nothing_of_a_file(kept, tmp_path, text):
    (tmp_path / "secret").write_text(text)
    with pytest.raises(PumiceError, match="is not a conversation") as error:
        files.read_conversation(tmp_path / "secret")
    assert "secret-123" not in str(error.value)


def test_other_keys_of_messages_are_neither_returned_nor_written(kept, tmp_path):
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_call_id": "1", "name": "add"},
    ]
    secret = {"password": "sk-secret-123"}
    more = [
        {**messages[0], **secret, "name": secret, "content": [{"type": "text", "text": "Be kind.", **secret}]},
        {**messages[1], "tool_calls": [{**call, **secret, "function": {**call["function"], **secret}}]},
        {**messages[2], "key": [secret]},
    ]
    (tmp_path / "more.json").write_text(json.dumps({"messages": more, **secret}))
    assert files.read_conversation(tmp_path / "more.json") == messages
    files.write_conversation(tmp_path / "written.json", more)
    assert json.loads((tmp_path / "written.json").read_text()) == {"messages": messages}
    assert files.read_conversation(tmp_path / "written.json") == messages


def test_ctrl_c_abandons_an_answer_and_the_next_is_its_own(monkeypatch, tmp_path):
    """The other process interrupts the chat while that waits for an answer, which comes after the next request."""
    asked, read = os.getpid(), files._read

    def read_slowly(path):
        if path.name == "slow.json":
            time.sleep(0.05)  # a signal just before the chat waits is noticed only when the wait ends
            os.kill(asked, signal.SIGINT)
            for _ in range(1000):
                if (tmp_path / "go").exists():
                    break
                time.sleep(0.01)
        return read(path)

    (tmp_path / "slow.json").write_text(json.dumps(SAID))
    monkeypatch.setattr(files, "_read", read_slowly)
    with files.kept_by_other_process():
        with pytest.raises(KeyboardInterrupt):
            files.read_conversation(tmp_path / "slow.json")
        (tmp_path / "go").touch()
        files.write_conversation(tmp_path / "new.json", SAID * 2)
        assert files.read_conversation(tmp_path / "new.json") == SAID * 2


def test_images_are_read_and_no_other_files(kept, tmp_path):
    png = b"\x89PNG\r\n\x1a\n and so on"
    (tmp_path / "a.png").write_bytes(png)
    assert read_image(tmp_path / "a.png").source == png
    flac = b"fLaC and so on"
    (tmp_path / "a.flac").write_bytes(flac)
    assert read_sound(tmp_path / "a.flac").source == flac
    mp4 = b"\0\0\0\x18ftypmp42 and so on"
    (tmp_path / "a.mp4").write_bytes(mp4)
    assert read_video(tmp_path / "a.mp4").source == mp4
    with pytest.raises(PumiceError, match="not a MP4"):
        read_video(tmp_path / "a.png")
    with pytest.raises(PumiceError, match="not a WAV"):
        read_sound(tmp_path / "a.png")
    with pytest.raises(PumiceError, match="not a PNG"):
        read_image(tmp_path / "a.flac")
    (tmp_path / "secret.png").write_bytes(b"BM a text that is no image")
    (tmp_path / "large.png").write_bytes(png.ljust(MAX_BYTES + 1))
    for name, problem in {"secret.png": "not a PNG", "large.png": "more than 32 MiB", "no.png": "No such file"}.items():
        with pytest.raises(PumiceError, match=problem):
            read_image(tmp_path / name)


def test_a_conversation_keeps_images_and_sounds_until_it_is_saved(tmp_path):
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "a.flac").write_bytes(b"fLaC and so on")
    conversation = Conversation(None, {})
    conversation.show(tmp_path / "a.png")
    conversation.play(tmp_path / "a.flac")
    (tmp_path / "a.webm").write_bytes(b"\x1aE\xdf\xa3 and so on")
    conversation.watch(tmp_path / "a.webm")
    conversation.say("What is this?")
    *media, text = conversation.messages[0]["content"]
    assert (text, conversation.media) == ("What is this?", [])
    assert list(map(type, media)) == [pumice.Image, pumice.Audio, pumice.Video]
    assert conversation.unsay() == text
    assert conversation.media == media
    conversation.say("And now?")
    conversation.save(tmp_path / "chat.json")
    [kept] = read_conversation(tmp_path / "chat.json")
    assert kept == {"role": "user", "content": "[image]\n[audio]\n[video]\nAnd now?"}


def test_a_device_or_a_large_file_is_not_read(monkeypatch, tmp_path):
    with pytest.raises(PumiceError, match="is not a conversation"):
        files._read(type(tmp_path)("/dev/zero"))
    monkeypatch.setattr(files, "_MAX_BYTES", 100)
    (tmp_path / "large.json").write_text(json.dumps(SAID) + " " * 100)
    with pytest.raises(PumiceError, match="is not a conversation"):
        files._read(tmp_path / "large.json")
