"""Texts of PDF files, and files that are none."""

import base64
import contextlib
import random

import pytest

from pdf_files import pdf_file
from pumice.errors import RequestError
from pumice.media import documents
from pumice.media.documents import pdf_text, read_pdf


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


needs_pypdf = pytest.mark.skipif(documents.find_spec("pypdf") is None, reason="texts of PDF files need pypdf")


@needs_pypdf
def test_the_text_of_each_page():
    read = pdf_text(encoded(pdf_file(["The fox (a vixen)", "has a kite."])))
    assert read.n_pages == 2
    assert [page.strip() for page in read.text.split("\f")] == ["The fox (a vixen)", "has a kite."]


@needs_pypdf
def test_files_that_cannot_be_read_are_one_line(monkeypatch):
    for data, problem in (
        (b"%PDF-1.4\nnothing", "the file is damaged; open it in a viewer"),
        (pdf_file(["", " "]), "the pages have no text"),
    ):
        with pytest.raises(RequestError, match=problem) as error:
            pdf_text(encoded(data))
        assert "\n" not in str(error.value)
    monkeypatch.setattr(documents, "MAX_PAGES", 1)
    with pytest.raises(RequestError, match="2 pages; at most 1 are read"):
        read_pdf(encoded(pdf_file(["a", "b"])))
    monkeypatch.setattr(documents, "MAX_TEXT", 3)
    with pytest.raises(RequestError, match="more than 3 characters"):
        read_pdf(encoded(pdf_file(["abcdef"])))


@needs_pypdf
def test_damaged_files_raise_nothing_else():
    good, dice = pdf_file(["The fox", "has a kite."]), random.Random(0)
    for _ in range(200):
        data = bytearray(good)
        for _ in range(dice.randrange(1, 8)):
            data[dice.randrange(9, len(data))] = dice.randrange(256)
        with contextlib.suppress(RequestError):
            read_pdf(encoded(bytes(data)))
