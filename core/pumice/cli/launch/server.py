"""The server of a launched client: one that runs already, or one that is started and ends with the client."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import click

from pumice.cli.launch.clients import Endpoint
from pumice.cli.output import echo
from pumice.process_list import RunningServer, servers

_ASK_SECONDS = 10.0
_STOP_SECONDS = 10.0
_NO_KEY = "pumice"  # a server without keys takes any
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_LISTENING = re.compile(r"listening on (http://\S+)")


def running_server(model: str | None) -> RunningServer | None:
    """Return the server on this machine that serves ``model``, or any model; the youngest of several."""
    for server in reversed(servers()):
        if model is None or model in server.models or model in server.models.values():
            return server
    return None


@contextlib.contextmanager
def started_server(model: str, options: Sequence[str], api_key: str) -> Iterator[str]:
    """Start ``pumice serve MODEL`` on a free port, and yield its address once it listens; stop it at the end.

    The key is passed in the environment, which other users cannot read.

    Its messages go to the terminal until it listens, and then to a file, since the client has the terminal.

    Raises:
        ClickException: The server ended before it listened.
    """
    command = [sys.executable, "-m", "pumice", "serve", model, "--host", "127.0.0.1", "--port", "0", *options]
    descriptor, name = tempfile.mkstemp(prefix="pumice-serve-", suffix=".log")
    try:
        # A session of its own: Ctrl-C in the client is not meant for the server.
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stderr=descriptor,
            env={**os.environ, "LLAMA_API_KEY": api_key},
            start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        ) as server:
            try:
                yield _address(server, Path(name))
            finally:
                _stop(server)
    finally:
        os.close(descriptor)
        os.unlink(name)


def _end_with_parent() -> None:
    """Have the kernel stop this process when its parent ends, which may be killed."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    """Show what the server says until it listens, and return the address that it listens on."""
    with log.open() as messages:
        while True:
            ended = server.poll() is not None
            for line in _complete_lines(messages):
                echo(line, err=True, nl=False)
                if listening := _LISTENING.search(line):
                    return listening[1]
            if ended:
                raise click.ClickException(f"pumice serve ended with status {server.returncode}: see the lines above")
            time.sleep(0.05)


def _complete_lines(messages: IO[str]) -> Iterator[str]:
    """Yield complete lines; an incomplete last line is read again later."""
    while True:
        position = messages.tell()
        line = messages.readline()
        if not line.endswith("\n"):
            messages.seek(position)
            return
        yield line


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()


def endpoint(url: str, model: str | None, api_key: str) -> Endpoint:
    """Ask a server for its models, and return the endpoint of one of them, the first by default.

    Raises:
        ClickException: The server does not answer, refuses the key, or has no such model.
    """
    models = _models(url, api_key)
    if model is not None and model not in models:
        raise click.ClickException(f"{url} has no model {model!r}; it has {', '.join(models) or 'none'}")
    name = model or next(iter(models), None)
    if name is None:
        raise click.ClickException(f"{url} serves no models; pull one into it, or give MODEL")
    return Endpoint(url, name, api_key or _NO_KEY, *models[name])


def _models(url: str, api_key: str) -> dict[str, tuple[int, int]]:
    """Return the names of a server's models, with the tokens of context of each, and of training; 0 if unknown."""
    request = urllib.request.Request(f"{url}/v1/models", headers={"Authorization": f"Bearer {api_key or _NO_KEY}"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # this machine is behind no proxy
    try:
        with opener.open(request, timeout=_ASK_SECONDS) as response:
            rows = json.load(response)["data"]
        sizes = {row["id"]: row.get("meta") or {} for row in rows}
        return {name: (int(of.get("n_ctx") or 0), int(of.get("n_ctx_train") or 0)) for name, of in sizes.items()}
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            raise click.ClickException(
                f"{url} wants an API key; give it with --api-key or in $PUMICE_API_KEY"
            ) from None
        raise click.ClickException(f"{url}/v1/models: the server answered {error.code} {error.reason}") from None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise click.ClickException(f"{url}/v1/models: {error}; is it a server of OpenAI's protocol?") from None
