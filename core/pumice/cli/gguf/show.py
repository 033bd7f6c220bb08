"""``pumice gguf show``: metadata and tensors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.confined import FileCommand
from pumice.cli.files import ModelPath
from pumice.cli.options import json_option, no_sandbox_option
from pumice.cli.output import echo, echo_exact
from pumice.cli.vocabulary import option
from pumice.wording import counted_as, did_you_mean

if TYPE_CHECKING:
    from pumice.gguf import GGUFFile


@click.command("show", cls=FileCommand)
@click.argument("file", type=ModelPath())
@click.argument("key", required=False)
@option("--no-tensors", is_flag=True, group="Output", help="Leave out the tensors.")
@json_option
@no_sandbox_option
def show_command(file: str, key: str | None, no_tensors: bool, as_json: bool) -> None:
    """List metadata and tensors of FILE.

    With KEY, write the whole value of that key.
    """
    from pumice.gguf import GGUFFile

    with GGUFFile.open(file) as opened:
        if key is not None:
            echo_exact(whole_value(opened, key, as_json))
        elif as_json:
            echo(json.dumps(facts(opened, tensors=not no_tensors), indent=2))
        else:
            for line in lines(opened, tensors=not no_tensors):
                echo(line)


def whole_value(file: GGUFFile, key: str, as_json: bool) -> str:
    """Return a string value unchanged, any other value as JSON."""
    from pumice.errors import GGUFError

    if key not in file.metadata:
        raise GGUFError(f"{file.path}: there is no metadata key {key!r}{did_you_mean(key, file.metadata)}")
    value = plain(file.metadata[key])
    return value if isinstance(value, str) and not as_json else json.dumps(value)


def facts(file: GGUFFile, tensors: bool) -> dict[str, Any]:
    """Return the header of a file as JSON, with shapes in GGUF's order."""
    metadata = {
        key: {"type": file.metadata.encoded(key).type_name, "value": plain(value)}
        for key, value in file.metadata.items()
    }
    described = [
        {"name": tensor.name, "type": tensor.type.name, "shape": tensor.shape[::-1], "bytes": tensor.nbytes}
        for tensor in file.tensors.values()
    ]
    return {
        "path": str(file.path),
        "gguf_version": file.version,
        "alignment": file.alignment,
        "metadata": metadata,
        **({"tensors": described} if tensors else {}),
    }


def lines(file: GGUFFile, tensors: bool) -> list[str]:
    """Return the lines of a listing; long values are shortened."""
    from pumice.gguf.compare import describe_tensor, describe_value

    n_keys, n_tensors = counted_as(len(file.metadata), "key"), counted_as(len(file.tensors), "tensor")
    head = f"GGUF version {file.version}, {n_keys}, {n_tensors}, {file.n_bytes:,} bytes"
    keys = [f"{key} = {describe_value(file, key)}" for key in file.metadata]
    width = max(map(len, file.tensors), default=0)
    described = [f"{name:<{width}}  {describe_tensor(tensor)}" for name, tensor in file.tensors.items()]
    return [head, "", *keys, *(["", *described] if tensors and described else [])]


def plain(value: Any) -> Any:
    """Return a metadata value as a JSON-compatible object."""
    return value.tolist() if hasattr(value, "tolist") else value
