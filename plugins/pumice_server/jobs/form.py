"""Read a form with a file (``multipart/form-data``, RFC 7578), within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from email.message import Message
from email.parser import HeaderParser
from typing import NamedTuple

from pumice_server.errors import bad_request

_MAX_PARTS = 16
_MAX_TYPE = 256  # characters of Content-Type
_MAX_HEAD = 4096  # bytes of the headers of a part
_MAX_PARAMETERS = 32  # semicolons of them: Python's parser takes time with their square
_MAX_BOUNDARY = 70  # characters (RFC 2046)
_FILE = "file"  # the field that may be large
_MAX_TEXT = 32 << 10  # bytes of any other field


class Field(NamedTuple):
    """A field of a form; ``filename`` is None unless it is a file."""

    content: bytes
    filename: str | None = None


def read_form(content_type: str, body: bytes) -> Mapping[str, Field]:
    """Return the fields of a form by name; those of a list joined by commas. Raises HTTPException."""
    if len(content_type) > _MAX_TYPE:
        raise bad_request(f"Content-Type has more than {_MAX_TYPE} characters")
    head = Message()
    head["Content-Type"] = content_type
    boundary = head.get_param("boundary")
    is_form = head.get_content_type() == "multipart/form-data" and isinstance(boundary, str)
    if not is_form or not 0 < len(str(boundary)) <= _MAX_BOUNDARY:
        raise bad_request("expected multipart/form-data with a boundary")
    mark = b"\r\n--" + str(boundary).encode("latin-1", "replace")
    _, *parts = (b"\r\n" + body).split(mark, _MAX_PARTS + 1)
    if not parts or not parts[-1].startswith(b"--"):
        raise bad_request(f"the form does not end, or has more than {_MAX_PARTS} fields")
    fields: dict[str, Field] = {}
    for name, field in map(_field, parts[:-1]):
        before = fields.get(name) if name.endswith("[]") else None
        fields[name] = Field(before.content + b"," + field.content, None) if before else field
    return fields


def _field(part: bytes) -> tuple[str, Field]:
    """Return the name and the content of a part. Raises HTTPException."""
    head, gap, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
    if not gap or len(head) > _MAX_HEAD:
        raise bad_request(f"a field of the form has no headers, or more than {_MAX_HEAD} bytes of them")
    if head.count(b";") > _MAX_PARAMETERS:
        raise bad_request(f"the headers of a field of the form have more than {_MAX_PARAMETERS} semicolons")
    try:
        headers = HeaderParser().parsestr(head.decode())
        name, filename = headers.get_param("name", header="content-disposition"), headers.get_filename()
        if filename is not None:
            filename.encode()
    except (ValueError, LookupError):  # of a charset that the client names, or of bytes that are no text
        raise bad_request("the headers of a field of the form are not valid in their charset") from None
    if not isinstance(name, str) or not name:
        raise bad_request("a field of the form has no name")
    if name != _FILE and len(content) > _MAX_TEXT:
        raise bad_request(f"the field {name!r:.100} has {len(content)} bytes; all but 'file' have at most {_MAX_TEXT}")
    return name, Field(content, filename)
