"""Text from outside is written by one function, which leaves nothing that a terminal obeys or hides."""

import json
import os
import pty
import re
import subprocess
import sys
import unicodedata

import pytest

from gguf_files import write_gguf
from pumice.gguf import GGUFFile
from pumice.wording import printable

EVIL = "\x1b[31m\x1b]0;owned\x07\x9b31m\u202e\u2066\u200b\U000e0041\x7f\r\b\u2028"
UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_printable_keeps_what_is_seen():
    assert printable("Größe 中文 é😀 \u3000\u00a0") == "Größe 中文 é😀 \u3000\u00a0"
    assert printable("a\nb\tc\rd", "\n\t") == "a\nb\tc?d"
    assert set(printable(EVIL)) == {*"?[31m]0;owned"}
    shown = printable("".join(map(chr, range(0x110000))))
    assert not {mark for mark in shown if unicodedata.category(mark) in UNSEEN}


@pytest.fixture
def file(model, home) -> str:
    """A model whose texts are hostile: names, notes, the template, and the names of a key and a tensor."""
    notes = {f"general.{name}": EVIL for name in ("name", "author", "license", "description", "url")}
    evil = {"x" + EVIL: "y", "tokenizer.chat_template": "{{ messages }}" + EVIL, "general.tags": [EVIL]}
    with GGUFFile.open(model) as opened:
        tensors = {name: tensor.dequantize() for name, tensor in opened.tensors.items()}
        metadata = {**opened.metadata, **notes, **evil}
    name = str(home / "evil.gguf")
    write_gguf(name, metadata, {**tensors, "t" + EVIL: next(iter(tensors.values()))})
    return name


COMMANDS = [
    *("info FILE", "info FILE --json", "info FILE --graph", "fit FILE", "gguf show FILE", "gguf show FILE --json"),
    *("gguf show FILE general.name --json", f"gguf show FILE nothing{EVIL}", "check FILE", "gguf diff FILE MODEL"),
    *("gguf diff FILE MODEL --json", "gguf hash FILE", f"gguf rename FILE -o out.gguf nothing{EVIL}=x"),
    *(f"gguf set FILE -o out.gguf x{EVIL}=u32:a", f"perplexity FILE -f none{EVIL}", f"none{EVIL}"),
    *(f"run FILE -p a -n 1 --chat-template {EVIL}", f"quantize FILE out.gguf Q4{EVIL}"),
]


@pytest.mark.parametrize("line", COMMANDS, ids=printable)
def test_hostile_texts_are_written_as_text(line, file, model, run):
    words = line.split(" ")
    done = run(*({"FILE": file, "MODEL": model}.get(word, word) for word in words))
    output = done.stdout + done.stderr
    assert output
    assert not [mark for mark in output if unicodedata.category(mark) in UNSEEN and mark not in "\n\t"], output
    if "--json" in words and not done.returncode:
        assert "owned" in json.dumps(json.loads(done.stdout))


GENERATED = EVIL.replace("\r", "").replace("\u2028", "") + "\u0627\u200c\u200d"


@pytest.mark.parametrize("command", ["run", "chat"])
def test_generated_text_does_not_control_a_terminal(command, home, tmp_path, run):
    """A pipe gets the text that the grammar demands, a terminal one without what it would obey."""
    grammar = "".join(f"\\U{ord(mark):08x}" for mark in GENERATED)
    (tmp_path / "g.gbnf").write_text(f'root ::= "{grammar}"')
    options = [command, "-p", "a", "--grammar-file", str(tmp_path / "g.gbnf"), "--backend", "numpy"]
    assert run(*options).stdout.removesuffix("\n") == GENERATED
    terminal, end = pty.openpty()
    line = [sys.executable, "-m", "pumice", *options]
    subprocess.run(line, stdin=subprocess.DEVNULL, stdout=end, stderr=subprocess.DEVNULL, check=True)
    os.close(end)
    shown = os.read(terminal, 10000).decode()
    os.close(terminal)
    assert "owned" in shown
    shown = re.sub(r"\x1b\[(\d*[ADKJ]|[\d;]*m)", "", shown)  # what Pumice itself writes
    unseen = {mark for mark in shown if unicodedata.category(mark) in UNSEEN}
    assert unseen <= set("\n\r\u200c\u200d")
