"""``pumice launch``: a client, such as a coding agent, with a server of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence

import click

from pumice.cli.launch.clients import CLIENTS, Client, ConfigFile, Endpoint, Setup
from pumice.cli.launch.config_files import add_endpoint, added_part
from pumice.cli.launch.server import endpoint, running_server, started_server
from pumice.cli.named_models import is_here, locate_model
from pumice.cli.output import echo
from pumice.cli.vocabulary import GroupedCommand, defined, option
from pumice.options import ENGINE
from pumice.wording import unknown_name


class _Launch(GroupedCommand):
    """Arguments behind ``--`` are the client's, and are kept from click, which would drop the ``--``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        place = args.index("--") if "--" in args else len(args)
        ctx.meta[_ARGUMENTS] = args[place + 1 :]
        return super().parse_args(ctx, args[:place])


_ARGUMENTS = "pumice.launch_arguments"


@click.command("launch", cls=_Launch)
@click.argument("client", required=False)
@click.argument("model", required=False)
@defined(
    ENGINE["n_ctx"],
    metavar="N",
    help="Context of a started server in tokens; 0: the model's, as far as memory has room.",
)
@option("--url", metavar="URL", help="Address of a server to use, such as http://127.0.0.1:8080.")
@option("--api-key", envvar="PUMICE_API_KEY", default="", help="API key of the server; also $PUMICE_API_KEY.")
@option("--print", "only_print", is_flag=True, help="Print the command and its environment; run nothing.")
@option("--write", is_flag=True, help="Add the server to the client's configuration file, if it needs one.")
@option("--json", "as_json", is_flag=True, help="Write JSON, with --print or without CLIENT.")
@click.pass_context
def command(
    ctx: click.Context,
    client: str | None,
    model: str | None,
    n_ctx: int | None,
    url: str | None,
    api_key: str,
    only_print: bool,
    write: bool,
    as_json: bool,
) -> None:
    """Start a coding agent with a local model.

    CLIENT is one of the names that `pumice launch` lists; arguments after -- are passed to it.

    The client uses the server that runs on this machine (see `pumice ps`), with MODEL if it is given. If there is none,
    a server of MODEL is started, and stopped when the client ends. The client's own files are changed by --write alone.
    """
    if client is None:
        _list_clients(as_json)
        return
    if client not in CLIENTS:
        raise click.UsageError(unknown_name("client", client, CLIENTS))
    row = CLIENTS[client]
    program = shutil.which(row.program)
    if program is None and not only_print:
        raise click.ClickException(f"{row.program} ({row.title}) is not on the PATH; install it: {row.install}")
    only_running = only_print or row.config_file is not None  # a started server would end before what names it
    with _served(url, model, api_key, n_ctx, only_running) as served:
        _warn_of_small_context(row, served)
        setup = row.setup(served)
        run = [program or row.program, *setup.arguments, *ctx.meta[_ARGUMENTS]]
        if only_print:
            _print(row, served, run, setup, as_json)
            return
        if row.config_file is not None:
            _configure(row, row.config_file, served, write)
        status = _run(run, setup.environment)
    ctx.exit(status)


def _warn_of_small_context(row: Client, served: Endpoint) -> None:
    if 0 < served.n_ctx < row.min_ctx:
        advice = f"start the server with --ctx-size {row.min_ctx}, or with more free memory"
        if 0 < served.n_ctx_train < row.min_ctx:
            advice = f"{served.model} was trained for {served.n_ctx_train}, so another model is needed{_suggestion()}"
        echo(
            f"warning: the context has {served.n_ctx} tokens; {row.title} needs {row.min_ctx} to work well: {advice}",
            err=True,
        )


def _print(row: Client, served: Endpoint, command: Sequence[str], setup: Setup, as_json: bool) -> None:
    """Print how to start a client: lines for a POSIX shell, or JSON."""
    if as_json:
        echo(json.dumps({"command": list(command), "environment": dict(setup.environment)}, indent=2))
        return
    if row.config_file is not None:
        echo(f"# {row.config_file.path()}\n{added_part(row.config_file, served)}", nl=False)
    echo(f"# {row.title}")
    for name, value in setup.environment.items():
        echo(f"export {name}={shlex.quote(value)}" if value else f"unset {name}")
    echo(shlex.join([row.program, *command[1:]]))


def _configure(row: Client, file: ConfigFile, served: Endpoint, write: bool) -> None:
    """Write a client's configuration file, or print what has to be in it.

    Raises:
        ClickException: Without ``write``, since the client would not find the server.
    """
    if write:
        echo(f"wrote {add_endpoint(file, served)}", err=True)
        return
    echo(added_part(file, served), nl=False)
    raise click.ClickException(f"{row.title} takes models from {file.path()}: add these lines there, or give --write")


def _list_clients(as_json: bool) -> None:
    rows = [
        {"name": name, "title": row.title, "installed": shutil.which(row.program) is not None, "install": row.install}
        for name, row in CLIENTS.items()
    ]
    if as_json:
        echo(json.dumps(rows, indent=2))
        return
    width = max(len(client.title) for client in CLIENTS.values())
    for row in rows:
        echo(f"{row['name']:<12} {row['title']:<{width}} {'installed' if row['installed'] else row['install']}")


@contextlib.contextmanager
def _served(
    url: str | None, model: str | None, api_key: str, n_ctx: int | None, only_running: bool
) -> Iterator[Endpoint]:
    """Yield the endpoint of the server named, of one that runs, or of one that is started for the while.

    Raises:
        ClickException: No server runs and none can be started.
    """
    if url is not None:
        yield endpoint(url.rstrip("/").removesuffix("/v1"), model, api_key)
        return
    if running := running_server(model):
        yield endpoint(running.address, running.models.get(model or "", model), api_key)
        return
    if model is None:
        raise click.UsageError(
            f"no server runs on this machine; name a MODEL to serve{_suggestion()}, or a server with --url"
        )
    if only_running:
        raise click.UsageError(f"no server has {model} loaded; start one with: pumice serve {shlex.quote(model)}")
    locate_model(model)  # an error names the model, before a server starts
    key = api_key or secrets.token_urlsafe()  # other users of this machine reach the port, too
    with started_server(model, [] if n_ctx is None else ["--ctx-size", str(n_ctx)], key) as address:
        yield endpoint(address, None, key)


def _suggestion() -> str:
    """Return the models that suit coding: those on this machine, or all of the catalogue."""
    from pumice.hub.catalogue import models_for

    names = models_for("coding")
    names = [name for name in names if is_here(name)] or names
    return f" that suits coding, such as {' or '.join(names)}" if names else ""


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a client in this terminal, and return its exit status. Ctrl-C is the client's to handle.

    The client ends with this process: when it is asked to end, or its terminal is closed.
    """
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))
    variables = {**os.environ, **environment}
    with subprocess.Popen(list(command), env={name: value for name, value in variables.items() if value}) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue
            except BaseException:
                process.terminate()
                raise
