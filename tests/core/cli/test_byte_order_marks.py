"""Text files may begin with a UTF-8 byte order mark, which editors of Windows write."""

import json

import pytest

from pumice.convert.folder import read_json
from pumice_server.keys import APIKeys

MARK = b"\xef\xbb\xbf"


def test_keys(tmp_path):
    (file := tmp_path / "keys").write_bytes(MARK + b"secret\r\n")
    assert APIKeys((), file).find("secret") is not None


def test_files_of_checkpoints(tmp_path):
    (file := tmp_path / "config.json").write_bytes(MARK + b'{"a": 1}')
    assert read_json(file) == {"a": 1}


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_refused_with_advice(run, model, home, encoding):
    (home / "text").write_bytes("\ufeffFROM x".encode(encoding))
    for arguments in (
        ["run", model, "-f", "text"],
        ["run", model, "-p", "x", "--grammar-file", "text"],
        ["quantize", model, "q.gguf", "q8_0", "--tensor-type-file", "text"],
        ["create", "x", "-f", "text"],
    ):
        done = run(*arguments)
        assert done.stderr.endswith("text: not UTF-8: byte 0; it seems to be UTF-16: save it as UTF-8\n"), arguments


def test_files_of_commands(run, model, home):
    def file(name: str, text: str) -> str:
        (home / name).write_bytes(MARK + text.encode())
        return str(home / name)

    short = ["-n", "4", "--temp", "0", "--backend", "numpy"]
    plain = run("run", model, "-p", "ab", *short).stdout
    assert run("run", model, "-f", file("prompt.txt", "ab"), *short).stdout == plain
    assert run("run", model, "-f", "-", *short, input=MARK + b"ab").stdout == plain
    assert run("run", model, "-p", "a", "--grammar-file", file("g.gbnf", 'root ::= "ab"'), *short).stdout == "ab"
    assert run("run", model, "-p", "a", "--json-schema-file", file("s.json", '{"enum": [1]}'), *short).stdout == "1"
    tokens = run("tokenize", model, "-f", file("prompt.txt", "ab"), "--json").stdout
    assert json.loads(tokens) == json.loads(run("tokenize", model, "ab", "--json").stdout)
    setting = f"tokenizer.chat_template={file('t.jinja', '{{ messages }}')}"
    assert run("gguf", "set", model, "-o", str(home / "o.gguf"), "--from-file", setting).returncode == 0
    assert run("gguf", "show", str(home / "o.gguf"), "tokenizer.chat_template").stdout == "{{ messages }}\n"
