"""Modelfiles: an error in one line that names the file, or an entry that the catalogue takes, in linear time."""

from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

import yaml

from fuzz import ROOT
from fuzz.draw import Draw
from fuzz.growth import check_linear, chosen
from pumice.config import Layer, _read, merge_layers
from pumice.errors import ConfigError
from pumice.hub.catalogue import look_up
from pumice.hub.modelfile import catalogue_record, parse_modelfile

MODULES = ("pumice.hub.modelfile",)
MAX_LEN = 1000
TOKENS = (
    b"FROM ", b"PARAMETER ", b"SYSTEM ", b"MESSAGE user ", b"TEMPLATE ", b"ADAPTER ", b"LICENSE ", b'"""', b'"', b"\n",
    b"{{ .Prompt }}", b"temperature ", b"num_ctx ", b"stop ", b"num_thread ", b"~root", b"~/", b"../", b"\0", b"1e999",
    b"nan", b"# ", b"\\", b"\t", b"9" * 40, b"\xe2\x80\xa8",
)  # fmt: skip


def seeds() -> Iterable[bytes]:
    yield b'FROM a\nPARAMETER temperature 0.5\nPARAMETER stop "x"\nPARAMETER num_thread 2\nSYSTEM """a\n"b" c"""\n'
    yield b"FROM ./a.gguf\nMESSAGE user Hi\nMESSAGE assistant Ho\nADAPTER ./b.gguf\nTEMPLATE chatml\nLICENSE x\n"
    yield b'# a\nfrom hf.co/a/b:Q4_K_M\nparameter num_predict -1\nPARAMETER use_mmap true\nREQUIRES 0.1\nSYSTEM "a" b\n'


@cache
def _defaults() -> Layer:
    return _read(ROOT / "registry.yaml")


def check(data: bytes) -> None:
    text = Draw(data).rest().decode(errors="replace")
    try:
        record = catalogue_record(parse_modelfile(text), Path("/nowhere"))
        config = merge_layers([_defaults(), Layer("Modelfile", {"models": {"made": record}})])
        merge_layers([_defaults(), look_up("made", config).options])
    except ConfigError as error:
        assert str(error).isprintable(), str(error)
    else:
        assert yaml.safe_load(yaml.safe_dump(record)) == record or "nan" in text.lower()
    if chosen(data, 64):
        check_linear(_parsed, "FROM a\n", text)


def _parsed(text: str) -> None:
    with suppress(ConfigError):
        parse_modelfile(text)
