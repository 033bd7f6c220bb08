"""Downloads from servers and networks that fail: the whole right file, or one line and nothing under its name."""

import json
import zlib

import pytest

from faulty_web import drip, ranges, reply, reset_after, serve, stall_after
from hub_server import content
from pumice import HubError
from pumice.hub import fetch, locate
from pumice.hub.web import web_directory

DATA, OTHER = content(20_000), content(20_000, 1)
HEAD = reply(b"", length=len(DATA), ETag='"1"')
GOOD = ranges(DATA)
WHOLE = reply(DATA, ETag='"1"')


@pytest.fixture(autouse=True)
def impatient(hub, monkeypatch):
    """Waits that are minutes are short here."""
    monkeypatch.setattr("pumice.hub.client._SILENT_SECONDS", 0.5)
    monkeypatch.setattr("pumice.hub.client._ANSWER_SECONDS", 1.0)


def files():
    """Return the files of the cache, without locks and notes about addresses."""
    kept = [path for path in web_directory().rglob("*") if path.is_file()]
    return [path for path in kept if path.suffix != ".lock" and path.name != "source.json"]


CURED = {
    "stall before headers": [stall_after(WHOLE, 0)],
    "stall in headers": [stall_after(WHOLE, 30)],
    "stall in the body": [stall_after(WHOLE, 9_000)],
    "headers drip": [drip(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10, 0, 0.05, repeat=True)],
    "too long a length": [reply(DATA[:9_000], length=len(DATA), ETag='"1"')],
    "no length, cut": [reply(DATA[:9_000], length=None, ETag='"1"')],
    "chunks of garbage": [reply(b"zz\r\nGGUF", length=None, Transfer_Encoding="chunked", ETag='"1"')],
    "chunks, cut": [reply(b"1000\r\n" + DATA[:500], length=None, Transfer_Encoding="chunked", ETag='"1"')],
    "no answer of HTTP": [b"SSH-2.0-OpenSSH\r\n"],
    "busy": [reply(b"", "503 No", Retry_After="0"), reply(b"", "429 No", Retry_After="0"), reply(b"", "502 No")],
    "another range": [
        reset_after(WHOLE, 9_000),
        reply(DATA[5:], "206 Part", ETag='"1"', Content_Range=f"bytes 5-{len(DATA) - 1}/{len(DATA)}"),
    ],
    "the whole as a part": [reset_after(WHOLE, 9_000), reply(DATA, "206 Part", ETag='"1"')],
    "the whole instead of a part": [reset_after(WHOLE, 9_000), WHOLE],
    "no such range": [reset_after(WHOLE, 9_000), reply(b"", "416 No", ETag='"1"')],
}


@pytest.mark.parametrize("fault", CURED)
def test_a_fault_that_passes_is_got_over(fault):
    with serve(*CURED[fault], GOOD, head=HEAD) as web:
        assert locate(web.url).path.read_bytes() == DATA
        assert len(web.requests) > len(CURED[fault]) or fault.startswith("the whole instead")
    assert [path.name for path in files()] == ["x.gguf"]


def test_a_connection_may_be_reset_at_any_byte():
    n_head = len(WHOLE) - len(DATA)
    for n_bytes in [0, 1, n_head - 1, n_head, n_head + 1, n_head + 3, n_head + 4, n_head + 5, len(WHOLE) - 1]:
        with serve(reset_after(WHOLE, n_bytes), GOOD, head=HEAD) as web:
            assert locate(web.url).path.read_bytes() == DATA


LASTING = {
    "a length that is negative": (reply(DATA, length=-5, ETag='"1"'), "no connection"),
    "two lengths": (reply(DATA, Content_length="7", ETag='"1"'), "no connection"),
    "too short a length": (reply(DATA, length=9_000, ETag='"1"'), "9,000 bytes, expected 20,000"),
    "compressed": (reply(zlib.compress(bytes(1 << 20)), Content_Encoding="gzip", ETag='"1"'), "a compressed response"),
    "another file": (reply(OTHER, ETag='"2"'), "changed during"),
    "a part unasked": (reply(DATA, "206 Part", ETag='"1"'), "responds with status 206"),
    "no content": (reply(b"", "204 No", ETag='"1"'), "responds with status 204"),
    "a redirect to itself": (reply(b"", "302 No", Location="/x.gguf"), "redirects"),
    "a redirect to a file": (reply(b"", "302 No", Location="file:///etc/passwd"), "answers 302|https://"),
    "a redirect to nothing": (reply(b"", "302 No", Location="http://[/"), "no connection"),
    "more than its size": (
        reply(b"8000\r\n" + DATA + bytes(0x8000), length=None, Transfer_Encoding="chunked", ETag='"1"'),
        "more than the file's 20,000 bytes",
    ),
    "a page": (reply(b"<html>" + bytes(19_994), ETag='"1"'), "not a GGUF file; it begins with b'<htm'"),
    "busy for ever": (reply(b"", "503 No"), r"the server failed \(503\)"),
    "gone": (reply(b"", "404 No"), "no such file"),
}


@pytest.mark.parametrize("fault", LASTING)
def test_a_fault_that_stays_is_one_line_and_leaves_nothing(fault):
    answer, says = LASTING[fault]
    with serve(answer, head=HEAD) as web, pytest.raises(HubError, match=says) as error:
        locate(web.url)
    assert "\n" not in str(error.value)
    assert files() == []


def test_a_file_that_changes_is_never_a_mixture():
    for second in (ranges(OTHER, '"2"'), reply(OTHER, ETag='"2"')):
        with serve(reset_after(WHOLE, 9_000), second, head=HEAD) as web:
            with pytest.raises(HubError, match="changed during"):
                locate(web.url)
            assert all(path.read_bytes() == OTHER for path in files())
            web.head = reply(b"", length=len(OTHER), ETag='"2"')
            assert fetch(web.url)[0].read_bytes() == OTHER


@pytest.mark.parametrize("tag", ['W/"1"', "\xff\xfe", "x" * 5_000, ""])
def test_a_tag_may_be_any_text(tag):
    """A tag that cannot stand in a request is compared, and not sent."""
    whole = reply(DATA, ETag=tag)
    with serve(
        reset_after(whole, len(whole) - 9_000), ranges(DATA, tag), head=reply(b"", length=len(DATA), ETag=tag)
    ) as web:
        assert locate(web.url).path.read_bytes() == DATA


def test_a_file_without_a_tag_is_not_resumed():
    bare = reply(DATA, length=None)
    with serve(reset_after(reply(DATA), 9_000), reply(OTHER)) as web:
        assert locate(web.url).path.read_bytes() == OTHER
        assert not any("Range:" in request for request in web.requests)
    with serve(bare[:-1], bare) as web:
        with pytest.raises(HubError, match="the received file is incomplete"):
            locate(web.url)
        assert files() == [] or [path.read_bytes() for path in files()] == [OTHER]
        assert locate(web.url).path.read_bytes() == DATA


@pytest.mark.parametrize(
    "answer",
    [
        reply(zlib.compress(bytes(1 << 24)), Content_Encoding="deflate"),
        reply(b"[" * 100_000),
        reply(b"x" * 20_000),
        drip(reply(b" " * 1000, length=1 << 40), 100, 0.05, repeat=True),
        *[
            reply(json.dumps(value).encode())
            for value in (
                None, [], {}, {"sha": "c" * 40}, {"sha": "c" * 40, "siblings": 1}, {"sha": "c" * 40, "siblings": [1]},
                {"sha": "c" * 40, "siblings": [{"rfilename": 1}]}, {"sha": None, "siblings": []},
                {"sha": "c" * 40, "siblings": [{"rfilename": "x.gguf", "lfs": 5}]},
                {"sha": "c" * 40, "siblings": [{"rfilename": "x.gguf", "lfs": {"sha256": 5}}]},
            )
        ],
    ],
)  # fmt: skip
def test_a_list_of_files_that_is_none_is_one_line(answer, monkeypatch):
    monkeypatch.setattr("pumice.hub.client._MAX_ANSWER", 10_000)
    with serve(answer) as web:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", web.url.removesuffix("/x.gguf"))
        with pytest.raises(HubError) as error:
            locate("a/b")
    assert "\n" not in str(error.value)


def test_a_drip_is_given_up_and_goes_on_later(monkeypatch):
    monkeypatch.setattr("pumice.hub.download._SLOW_SECONDS", 0.2)
    with serve(drip(WHOLE, 9_000), GOOD, head=HEAD) as web:
        monkeypatch.setattr("pumice.hub.download._SLOW_BYTES", 10_000)
        with pytest.raises(HubError, match="is too slow; try again, the received part is kept"):
            locate(web.url)
        assert len(web.requests) == 1
        monkeypatch.setattr("pumice.hub.download._SLOW_BYTES", 1)
        assert locate(web.url).path.read_bytes() == DATA
        assert "Range: bytes=" in web.requests[1]


def test_the_body_of_a_redirect_is_not_read():
    endless = reply(b"x" * 100, "302 Found", length=1 << 40, Location="/x.gguf")
    with serve(drip(endless, len(endless) - 100, 0.01, repeat=True), GOOD, head=HEAD) as web:
        assert locate(web.url).path.read_bytes() == DATA
