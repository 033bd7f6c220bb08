"""Presets: an error in one line that names the file, or names and arguments that the command line understands."""

import io
from collections.abc import Iterable
from contextlib import redirect_stderr

import click

from fuzz.files import scratch
from pumice_server.command.presets import read_presets
from pumice_server.command.serve import command

MODULES = ("pumice_server.command.presets", "pumice_server.command.arguments", "pumice_server.command.environment")
MAX_LEN = 800
TOKENS = (
    b"[a]\n", b"[*]\n", b"version = 1\n", b"model = ", b"ctx-size = ", b"temp = ", b"LLAMA_ARG_", b"N_PARALLEL = ",
    b"no-mmap = true\n", b"lora = ", b"api-key = ", b"load-on-startup = ", b"\n  ", b"%(", b"${", b"#", b";", b"=",
    b"[", b"]", b"\0", b"\xef\xbb\xbf", b"\x1c", b"\xc2\x85", b"jinja = 1\n", b"-c = 1\n", b"hf = ",
)  # fmt: skip


def seeds() -> Iterable[bytes]:
    yield b"version = 1\n[*]\nctx-size = 512\n[small]\nmodel = a.gguf\ntemp = 0.5\n[large]\nhf = a/b:Q4_K_M\n"
    yield b"[a]\nmodel = a.gguf\nLLAMA_ARG_N_PARALLEL = 2\nno-mmap = true\nlora = b.gguf\nload-on-startup = true\n"


def check(data: bytes) -> None:
    path = scratch("presets.ini", data)
    try:
        with redirect_stderr(io.StringIO()):  # warnings
            presets = read_presets(path, command.params, ("port", "host"))
    except click.UsageError as error:
        assert len(str(error).splitlines()) == 1, str(error)
        assert "\0" not in str(error), str(error)
        assert str(path) in str(error)
        return
    assert presets
    for arguments in presets.values():
        assert all(isinstance(argument, str) for argument in arguments)
        assert not arguments or arguments[0].startswith("-")
