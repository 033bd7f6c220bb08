"""Files in base64, as encoders and people write it."""

import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pumice import RequestError
from pumice.chat.media import kind_of_base64
from pumice.media.encoded import decode_base64

WRITERS = {
    "plain": lambda data: base64.b64encode(data).decode(),
    "lines": lambda data: base64.encodebytes(data).decode(),
    "Windows lines": lambda data: base64.encodebytes(data).decode().replace("\n", "\r\n"),
    "url-safe": lambda data: base64.urlsafe_b64encode(data).decode(),
    "url-safe without padding": lambda data: base64.urlsafe_b64encode(data).decode().rstrip("="),
    "without padding": lambda data: base64.b64encode(data).decode().rstrip("="),
    "spaces around": lambda data: f" \t{base64.b64encode(data).decode()}\n",
    "short lines": lambda data: re.sub("...", r"\g<0>\n", base64.b64encode(data).decode()),
}


@pytest.mark.parametrize("writer", WRITERS)
@given(st.binary(min_size=1, max_size=300))
def test_base64_of_every_encoder(writer, data):
    assert decode_base64(WRITERS[writer](data), "image") == data


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_of_several_pieces(writer):
    data = bytes(range(256)) * 3000 + b"x"
    assert decode_base64(WRITERS[writer](data), "image") == data


@pytest.mark.parametrize("text", ["a", "abcde", "ab=c", "YQ==YQ==", "a!bc", "YWÄ=", "Y===", "=", ""])
def test_other_texts_are_refused(text):
    with pytest.raises(RequestError, match="image: the data is"):
        decode_base64(text, "image")


@pytest.mark.parametrize("writer", WRITERS)
def test_the_kind_of_a_file(writer):
    assert kind_of_base64(WRITERS[writer](b"RIFF\0\0\0\0WAVEfmt " + bytes(40))) == "audio"
    assert kind_of_base64(WRITERS[writer](b"\x89PNG\r\n\x1a\n" + bytes(40))) == "image"
