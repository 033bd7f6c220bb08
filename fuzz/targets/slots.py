"""Saved prompts: invalid files and names are refused; restored prompts are equal when saved again."""

import json
from collections.abc import Iterable
from functools import cache

from fuzz.draw import Draw
from fuzz.files import folder
from fuzz.served import NAMES, Answer, Application, tiny_application

MODULES = ("pumice_server.protocols.llama_server.slots",)
MAX_LEN = 300
RUNS = 150
TOKENS = (
    b'"model":',
    b'"tokens":',
    b'"tiny"',
    b"[",
    b"]",
    b"-1",
    b"299",
    b"300",
    b"2147483648",
    b"1e3",
    b"null",
    b'"5"',
    b"{}",
)


def seeds() -> Iterable[bytes]:
    for tokens in ([], [5, 6, 7], [300], list(range(60))):
        yield b"\0\1a\1\x30" + json.dumps({"model": NAMES[0], "tokens": tokens}).encode()
    yield b"\1\3../\1\x31{}"


@cache
def _application() -> Application:
    return Application(tiny_application(slot_folder=folder()))


def check(data: bytes) -> None:
    draw = Draw(data)
    action = draw.choice(("restore", "save", "erase", "other"))
    name, slot = draw.text(draw.below(8)), draw.text(draw.below(12)) or "0"
    content = draw.rest()
    (folder() / "a").write_bytes(content)
    body = json.dumps({"filename": name}).encode()
    answer = _post(slot, action, body)
    assert answer.status < 500, answer
    if answer.status == 200 and action == "restore":
        assert _post(slot, "save", b'{"filename": "again"}').status == 200
        saved, again = json.loads((folder() / name).read_bytes()), json.loads((folder() / "again").read_bytes())
        assert again == {"model": NAMES[0], "tokens": [int(token) for token in saved["tokens"]]}


def _post(slot: str, action: str, body: bytes) -> Answer:
    if "/" in slot or not slot.isprintable():
        slot = "0"
    return _application()("POST", f"/slots/{slot}", body, query=f"action={action}".encode())
