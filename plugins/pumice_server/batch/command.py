"""The command ``pumice batch``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.cluster import cluster_options, take_cluster
from pumice.cli.named_models import locate_model
from pumice.cli.options import load_options, separated, take_template, template_options
from pumice.cli.output import echo
from pumice.cli.progress import show_progress
from pumice.cli.vocabulary import GroupedCommand, defined, option
from pumice.options import ENGINE
from pumice_server.command.allowed_tools import allowed_servers, tool_options
from pumice_server.command.defaults import chat_options, take_chat

if TYPE_CHECKING:
    from pumice.mcp import HostedTools, McpServer
    from pumice.plugin.unstable import BatchRow, ModelSpec

Take = Callable[[Mapping[str, Any]], None]
Answer = Callable[["Iterable[BatchRow]", Take], None]

_FLIGHT_PER_SEQUENCE = 2  # rows in flight for each sequence that is computed, so that the engine never waits for one

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("batch", cls=GroupedCommand)
@click.argument("source", metavar="INPUT", type=_FILE)
@click.argument("target", metavar="OUTPUT", type=_FILE)
@option("-m", "--model", metavar="MODEL", group="Model", help="Model that answers.  [default: the demo model]")
@option("--errors", type=_FILE, metavar="FILE", group="Output", help="Write the results of failed rows to FILE, too.")
@template_options
@chat_options
@defined(
    ENGINE["n_parallel"],
    default=16,
    metavar="N",
    help="Maximum number of requests computed at once.  [default: 16]",
)
@tool_options("Tools")
@load_options
@cluster_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    source: Path,
    target: Path,
    model: str | None,
    errors: Path | None,
    n_parallel: int,
    **options: Any,
) -> None:
    """Answer a file of requests.

    INPUT has one request per line in OpenAI's batch format (custom_id, method, url and body), or is Parquet. Results
    are appended to OUTPUT as they come. After an interruption, the same command continues.
    """
    from pumice.cli.confinement import one_thread

    try:
        with one_thread():
            import pumice_server.batch.answering
            import pumice_server.batch.results  # noqa: F401
    except ModuleNotFoundError as error:
        from pumice.plugin.unstable import install_command

        raise click.ClickException(f"{error.name} is not installed: {install_command('server')}") from None
    for path in filter(None, (source, target, errors)):
        if path.exists() and not path.is_file():
            raise click.ClickException(f"{path}: not a regular file; rows and results are read several times")
    _check_distinct(("INPUT", source), ("OUTPUT", target), ("--errors", errors))
    cluster, replicas = take_cluster(options)
    options["n_parallel"] = n_parallel
    template = take_template(options)
    if template is not None:
        options["config"]["chat_template"] = template
    chat = take_chat(options, reasons=None)
    if chat and cluster is not None:
        raise click.UsageError("on a cluster, options of reasoning and template variables are fields of the rows")
    servers = allowed_servers(separated(options.pop("allow_tools")), options.pop("mcp_config"))
    if servers and cluster is not None:
        raise click.UsageError("--allow-tools is not available on a cluster")
    spec = _spec(model, options)
    n_in_flight = _FLIGHT_PER_SEQUENCE * n_parallel
    is_confined = ctx.obj is True and cluster is None
    outputs = [path for path in (target, errors) if path]
    with contextlib.ExitStack() as stack:
        tools = stack.enter_context(_hosted(servers)) if servers else None
        if is_confined:
            stack.enter_context(_confined(spec, source, outputs))

        def answer(rows: Iterable[BatchRow], take: Take) -> None:
            if cluster is None:
                asyncio.run(_answer(spec, chat, tools, rows, n_in_flight, take))
            else:
                with cluster.connected():
                    for result in cluster.answer(spec, rows, n_in_flight, replicas):
                        take(result)

        _run(source, target, errors, answer)


def _check_distinct(*files: tuple[str, Path | None]) -> None:
    """Raise ClickException if two of the named files are the same file."""
    named = [(name, os.path.realpath(path)) for name, path in files if path]
    for (name, path), (other, other_path) in combinations(named, 2):
        if path == other_path:
            raise click.ClickException(f"{name} and {other} are the same file, {path}; choose two")


def _hosted(servers: Mapping[str, McpServer]) -> contextlib.AbstractContextManager[HostedTools]:
    from pumice.mcp import hosted_tools

    return hosted_tools(servers)


def _run(source: Path, target: Path, errors: Path | None, answer: Answer) -> None:
    """Answer the rows that have no results yet."""
    from pumice_server.batch.results import Results
    from pumice_server.batch.rows import read_ids, read_rows

    ids = read_ids(source)
    with Results(target, errors, ids) as results:
        n_before = len(results.done)
        if n_before:
            echo(f"{n_before} of {len(ids)} results are in {target} already", err=True)
        began = time.monotonic()
        if n_before < len(ids):
            rows = (row for row in read_rows(source) if row.custom_id not in results.done)
            with show_progress("rows", unit="row") as progress:

                def take(result: Mapping[str, Any]) -> None:
                    results.add(result)
                    progress(len(results.done), len(ids))

                answer(rows, take)
        if len(results.done) < len(ids):
            n_missing = len(ids) - len(results.done)
            raise click.ClickException(f"{n_missing} of {len(ids)} results are missing: run the command again")
        results.finish()
        spent = time.monotonic() - began
        noun = "row" if len(ids) == 1 else "rows"
        echo(f"{len(ids)} {noun}, {results.n_failed} of them failed; {spent:.1f} seconds", err=True)


@contextlib.contextmanager
def _confined(spec: ModelSpec, source: Path, outputs: Sequence[Path]) -> Iterator[None]:
    """Confine this process permanently: it reads the rows, writes in the folders of its results, and has no network."""
    from pumice.cli.confinement import Needs, confined_server

    folders = [str(path.absolute().parent) for path in outputs]
    with confined_server(Needs([spec.path], spec.options, [str(source.absolute())], folders)):
        yield


def _spec(model: str | None, options: dict[str, Any]) -> ModelSpec:
    import pumice
    from pumice.plugin.unstable import ModelSpec
    from pumice_server.command.choice import name_of

    path = model or str(pumice.demo_model_path())
    locate_model(path)
    return ModelSpec([name_of(path)], path, options)


async def _answer(
    spec: ModelSpec,
    chat: Mapping[str, Any],
    tools: HostedTools | None,
    rows: Iterable[BatchRow],
    n_in_flight: int,
    take: Take,
) -> None:
    from pumice_server.batch.answering import Answering
    from pumice_server.batch.work import answer_all
    from pumice_server.command.serving import load_process

    async with Answering(spec, partial(load_process, command="batch"), chat, tools) as answering:
        async for result in answer_all(rows, answering.answer, n_in_flight):
            take(result)
