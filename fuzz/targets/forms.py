"""Forms with files: an error, or fields within the body and their limits; a written form is read as it was."""

from collections.abc import Iterable

from starlette.exceptions import HTTPException

from fuzz.draw import Draw
from pumice_server.jobs.form import _MAX_TEXT, read_form
from pumice_server.protocols.openai.transcriptions import _read

MODULES = ("pumice_server.jobs.form",)
MAX_LEN = 2000
_HEAD = 'Content-Disposition: form-data; name="{}"'
TOKENS = (
    b"--x", b"\r\n--x\r\n", b"\r\n--x--", b"\r\n\r\n", b"Content-Disposition: form-data; ", b'name="', b'"; filename="',
    b"filename*=utf-8''", b"name*0=", b"Content-Type: ", b"%ff", b"=?utf-8?b?", b";", b"\\", b"\0", b"boundary=",
    b"temperature", b"max_tokens", b"model", b"language", b"1e999", b"nan",
)  # fmt: skip


def seeds() -> Iterable[bytes]:
    fields = [("file", b"RIFF0000WAVE"), ("model", b"a"), ("temperature", b"0.5"), ("stream", b"true")]
    body = b"".join(b"--x\r\n" + _HEAD.format(name).encode() + b"\r\n\r\n" + text + b"\r\n" for name, text in fields)
    yield b"\1" + body + b"--x--\r\n"
    yield b"\1" + b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n\0\r\n--y\r\n--x--'
    yield b"\0\4file\3abc\5model\1a"


def check(data: bytes) -> None:
    draw = Draw(data)
    if draw.flag():
        body = draw.rest()
        _fields("multipart/form-data; boundary=x", body)
        _fields("multipart/form-data; " + body[:40].decode("latin-1"), body)
        return
    fields = {}
    while draw.left and len(fields) < 9:
        name = "".join(filter(str.isalnum, draw.text(draw.below(12)))) or "file"
        fields[name] = draw.bytes(draw.below(200))
    parts = [_HEAD.format(name).encode() + b"\r\n\r\n" + content for name, content in fields.items()]
    if any(b"\r\n--x" in b"\r\n" + part for part in parts) or not parts:
        return
    body = b"".join(b"--x\r\n" + part + b"\r\n" for part in parts) + b"--x--\r\n"
    read = read_form("multipart/form-data; boundary=x", body)
    assert {name: field.content for name, field in read.items()} == fields, (fields, read)


def _fields(head: str, body: bytes) -> None:
    try:
        form = read_form(head, body)
        assert sum(len(field.content) for field in form.values()) <= len(body)
        assert all(name == "file" or len(field.content) <= _MAX_TEXT for name, field in form.items())
        _read(form)
    except HTTPException as error:
        assert error.status_code == 400, error
        assert error.detail.isprintable(), error
