"""``pumice gguf diff``, ``check`` and ``hash``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pumice.cli.confined import FileCommand
from pumice.cli.files import InputFile, ModelPath
from pumice.cli.options import json_option, no_sandbox_option
from pumice.cli.output import echo
from pumice.cli.progress import show_progress
from pumice.cli.vocabulary import option

if TYPE_CHECKING:
    from pumice.gguf.compare import Difference

ALGORITHMS = ["sha256", "sha1", "md5", "xxh64", "uuid"]


@click.command("diff", cls=FileCommand)
@click.argument("first", type=ModelPath())
@click.argument("second", type=ModelPath())
@option("--no-data", is_flag=True, help="Compare metadata, types and shapes only.")
@json_option
@no_sandbox_option
@click.pass_context
def diff_command(ctx: click.Context, first: str, second: str, no_data: bool, as_json: bool) -> None:
    """Show the differences between two files.

    The exit status is 1 if there are any.
    """
    from pumice.gguf import GGUFFile
    from pumice.gguf.compare import differences

    with GGUFFile.open(first) as a, GGUFFile.open(second) as b:
        rows = list(differences(a, b, data=not no_data))
    if as_json:
        echo(json.dumps([difference._asdict() for difference in rows], indent=2))
    else:
        for line in (line for difference in rows for line in difference_lines(difference)):
            echo(line)
    ctx.exit(1 if rows else 0)


def difference_lines(difference: Difference) -> Iterator[str]:
    """Yield a line with - for entries of the first file alone, and one with + for entries of the second."""
    for sign, said in (("-", difference.first), ("+", difference.second)):
        if said is not None:
            yield f"{sign} {difference.what} {difference.name}: {said}"


@click.command("hash", cls=FileCommand)
@click.argument("file", type=ModelPath())
@option(
    "--algorithm",
    "algorithms",
    aliases=("-a",),
    multiple=True,
    type=click.Choice(ALGORITHMS),
    help="Checksum algorithm. Repeatable.  [default: sha256]",
)
@option("--no-tensors", is_flag=True, group="Output", help="Write only the checksums over all tensors.")
@option(
    "--check",
    "manifest",
    aliases=("-c",),
    type=InputFile(path_type=Path),
    metavar="FILE",
    help="Compare with the checksums in FILE.",
)
@no_sandbox_option
@click.pass_context
def hash_command(
    ctx: click.Context, file: str, algorithms: tuple[str, ...], no_tensors: bool, manifest: Path | None
) -> None:
    """Write checksums of FILE's tensors.

    Writes one checksum per tensor and one for all tensors, in the format of gguf-hash and llama-gguf-hash, without
    metadata. --check compares with such a list, and shows the lines that differ.
    """
    from pumice.gguf import GGUFFile
    from pumice.gguf.compare import checksums

    expected = read_manifest(manifest) if manifest else {}
    missing = dict(expected)
    algorithms = tuple(dict.fromkeys(algorithm for algorithm, _ in expected)) or algorithms or ("sha256",)
    failed = 0
    with GGUFFile.open(file) as opened, show_progress("hashing") as progress:
        for algorithm, digest, tensor in checksums(opened, algorithms, progress):
            if manifest:
                checksum = missing.pop((algorithm, tensor), None)
                if checksum not in (None, digest):
                    failed += 1
                    echo(f"{algorithm:<8}  {digest}  {file}{':' + tensor if tensor else ''}: differs")
            elif not tensor or not no_tensors:
                echo(f"{algorithm:<8}  {digest}  {file}{':' + tensor if tensor else ''}")
    for (algorithm, tensor), digest in missing.items():
        echo(f"{algorithm:<8}  {digest}  {file}:{tensor}: missing")
    ctx.exit(1 if failed or missing else 0)


def read_manifest(path: Path) -> dict[tuple[str, str], str]:
    """Return digests by algorithm and name of a tensor, empty for the whole model. Raises ClickException."""
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise click.ClickException(f"{path}: not a list of checksums: it is not text") from None
    digests = {}
    for number, line in enumerate(lines, 1):
        words = line.split(maxsplit=2)
        if len(words) != 3 or words[0] not in ALGORITHMS:
            raise click.ClickException(f"{path}: line {number} is not an algorithm, a digest and a name: {line[:60]!r}")
        digests[words[0], words[2].partition(".gguf:")[2]] = words[1]
    if not digests:
        raise click.ClickException(f"{path}: it has no checksums; `pumice gguf hash MODEL > FILE` writes them")
    return digests
