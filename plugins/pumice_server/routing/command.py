"""``pumice route``: spread requests over servers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from pumice.cli.options import verbose_option
from pumice.cli.output import echo
from pumice.cli.vocabulary import option
from pumice_server.command.listening_options import check_open_files, key_file_option, port_option

_server_option = partial(option, group="Server")


def _checked(ctx: click.Context, param: click.Parameter, urls: tuple[str, ...]) -> tuple[str, ...]:
    for url in urls:
        try:
            parts = urlsplit(url)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address:
            raise click.UsageError(f"{url!r}: expected the address of a server, such as http://127.0.0.1:8080")
    if len(set(urls)) < len(urls):
        raise click.UsageError("the same server is given twice")
    return urls


@click.command("route")
@click.argument("urls", metavar="URL...", nargs=-1, required=True, callback=_checked)
@_server_option(
    "--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on, or several."
)
@port_option
@_server_option(
    "-np",
    "--parallel",
    default=4,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
    help="Requests that one server computes at once: with as many, other servers take prompts that it knows.",
)
@key_file_option(" Keys of clients are passed on to the servers.")
@option(
    "--insecure",
    is_flag=True,
    group="Security",
    help="Listen on addresses that other machines reach, without an API key.",
)
@verbose_option
def command(urls: tuple[str, ...], parallel: int, insecure: bool, api_key_file: Path | None, **address: Any) -> None:
    """Spread requests over servers of the same models.

    Each URL is a running `pumice serve`. A prompt goes to the server that has read most of its beginning, if it has
    room, else to the least busy one. A server that ends or is busy is replaced by the others; requests without a prompt
    (files, batches, models) go to the first one.
    """
    check_open_files()
    from pumice.cli.confinement import Needs, confined_server, one_thread
    from pumice_server.command.beginning import listen
    from pumice_server.keys import APIKeys
    from pumice_server.settings import Settings

    settings = Settings(keys=APIKeys(file=api_key_file), **address)
    settings.check(insecure)
    with listen(settings) as sockets, one_thread():
        import uvicorn

        from pumice_server.command.serving import addresses, configure, stop_by_signals
        from pumice_server.routing.application import make_router
        from pumice_server.routing.servers import Servers

        async def tell() -> None:
            echo(f"routing to {', '.join(urls)}\nlistening on {addresses(settings, sockets)}", err=True)

        application = make_router(Servers(urls, parallel), settings, tell)
        server = uvicorn.Server(configure(application, settings))
        stop_by_signals(server)
        with confined_server(Needs([], {}, settings.read, connects=True)):
            server.run(sockets=sockets)
