"""``pumice gguf diff``, ``check`` and ``hash``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pumice.cli.gguf.show import printable
from pumice.cli.options import json_option
from pumice.cli.progress import show_progress

if TYPE_CHECKING:
    from pumice.gguf.compare import Difference

ALGORITHMS = ["sha256", "sha1", "md5", "xxh64", "uuid"]


@click.command("diff")
@click.argument("first", type=click.Path())
@click.argument("second", type=click.Path())
@click.option("--no-data", is_flag=True, help="Compare metadata, types and shapes, not the numbers.")
@json_option
@click.pass_context
def diff_command(ctx: click.Context, first: str, second: str, no_data: bool, as_json: bool) -> None:
    """Say what differs between two files.

    The exit status is 1 if anything does.
    """
    from pumice.gguf import GGUFFile
    from pumice.gguf.compare import differences

    with GGUFFile.open(first) as a, GGUFFile.open(second) as b:
        found = list(differences(a, b, data=not no_data))
    if as_json:
        click.echo(json.dumps([difference._asdict() for difference in found], indent=2))
    else:
        for line in (line for difference in found for line in difference_lines(difference)):
            click.echo(printable(line))
    ctx.exit(1 if found else 0)


def difference_lines(difference: Difference) -> Iterator[str]:
    """A line with - for what only the first file says, one with + for what the second does."""
    for sign, said in (("-", difference.first), ("+", difference.second)):
        if said is not None:
            yield f"{sign} {difference.what} {difference.name}: {said}"


@click.command("check")
@click.argument("file", type=click.Path())
@click.option("--no-data", is_flag=True, help="Do not look for numbers that are not finite.")
@click.pass_context
def check_command(ctx: click.Context, file: str, no_data: bool) -> None:
    """Look for all that is wrong with FILE.

    Tokenizer tables that do not fit, numbers that are not finite. The exit status is 1 if anything is wrong.
    """
    from pumice.gguf import GGUFFile
    from pumice.gguf.compare import problems

    with GGUFFile.open(file) as opened, show_progress("checking") as progress:
        found = list(problems(opened, data=not no_data, progress=progress))
    for line in found:
        click.echo(f"{file}: {printable(line)}")
    ctx.exit(1 if found else 0)


@click.command("hash")
@click.argument("file", type=click.Path())
@click.option(
    "-a",
    "--algorithm",
    "algorithms",
    multiple=True,
    type=click.Choice(ALGORITHMS),
    help="Repeatable; sha256 if not given.",
)
@click.option("--no-tensors", is_flag=True, help="Only the sums over all tensors.")
@click.option("-c", "--check", "manifest", type=click.Path(path_type=Path), help="Compare with the lines of a file.")
@click.pass_context
def hash_command(
    ctx: click.Context, file: str, algorithms: tuple[str, ...], no_tensors: bool, manifest: Path | None
) -> None:
    """Write checksums of FILE's tensors.

    Of each and of all together, as gguf-hash of the gguf package and llama-gguf-hash do: metadata do not count.

    --check compares with what this command or one of those wrote before, and says which lines differ.
    """
    from pumice.gguf import GGUFFile
    from pumice.gguf.compare import checksums

    expected = read_manifest(manifest) if manifest else {}
    algorithms = tuple(dict.fromkeys(algorithm for algorithm, _ in expected)) or algorithms or ("sha256",)
    failed = 0
    with GGUFFile.open(file) as opened, show_progress("hashing") as progress:
        for algorithm, digest, tensor in checksums(opened, algorithms, progress):
            if manifest:
                known = expected.get((algorithm, tensor))
                if known not in (None, digest):
                    failed += 1
                    click.echo(f"{algorithm:<8}  {digest}  {file}{':' + tensor if tensor else ''}: differs")
            elif not tensor or not no_tensors:
                click.echo(f"{algorithm:<8}  {digest}  {file}{':' + tensor if tensor else ''}")
    ctx.exit(1 if failed else 0)


def read_manifest(path: Path) -> dict[tuple[str, str], str]:
    """Digests by algorithm and name of a tensor, empty for the whole model."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path}: cannot be read: {error}") from None
    digests = {}
    for number, line in enumerate(lines, 1):
        words = line.split(maxsplit=2)
        if len(words) != 3 or words[0] not in ALGORITHMS:
            raise click.ClickException(f"{path}: line {number} is not an algorithm, a digest and a name: {line[:60]!r}")
        digests[words[0], words[2].partition(".gguf:")[2]] = words[1]
    return digests
