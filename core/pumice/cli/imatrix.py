"""``pumice imatrix``: measure the importance of the columns of a model's matrices on a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pumice.cli.confined import ConfinedCommand
from pumice.cli.files import InputFile, OutputFile
from pumice.cli.named_models import load_model
from pumice.cli.options import force_option, load_options, model_argument
from pumice.cli.output import echo
from pumice.cli.perplexity import bos_of, estimate_line, last, running_line, text_ids
from pumice.cli.prompt import read_prompt
from pumice.cli.vocabulary import option
from pumice.wording import counted_as

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pumice.evaluate.perplexity import Estimate
    from pumice.imatrix import ActivationSums
    from pumice.model import Model


def split_commas(paths: str) -> list[str]:
    """Split ``a.gguf,b.gguf``."""
    return [path for path in paths.split(",") if path]


@click.command("imatrix", cls=ConfinedCommand)
@model_argument
@option("-f", "--file", type=InputFile(path_type=Path), metavar="FILE", group="Prompt", help="Text to measure on.")
@option(
    "-o",
    "--output",
    "out",
    default="imatrix.gguf",
    type=OutputFile(path_type=Path),
    metavar="FILE",
    group="Output",
    help="File to write.",
)
@option(
    "--output-format",
    type=click.Choice(["gguf", "dat"]),
    group="Output",
    help="Format of the file.  [default: by its name]",
)
@option("--process-output", is_flag=True, help="Measure the input of the output matrix, too.")
@option(
    "--from-chunk",
    aliases=("--chunk",),
    type=click.IntRange(0),
    default=0,
    help="Number of chunks to skip at the beginning.",
)
@option("--chunks", type=click.IntRange(1), metavar="N", help="Maximum number of chunks to read.  [default: all]")
@option("--parse-special", is_flag=True, help="Read the names of control tokens, such as <|im_end|>, as tokens.")
@option(
    "--in-file",
    "in_files",
    multiple=True,
    type=InputFile(split_commas, replaceable=True),  # a sum may take the place of a part
    metavar="FILE,...",
    help="Add the measurements of other runs. Repeatable.",
)
@option(
    "--output-frequency",
    type=click.IntRange(1),
    default=10,
    group="Output",
    help="Number of chunks between two writes of the file.",
)
@option(
    "--save-frequency",
    type=click.IntRange(0),
    default=0,
    group="Output",
    help="Number of chunks between two copies of the file, which are kept; 0: none.",
)
@option(
    "--show-statistics", is_flag=True, group="Output", help="Show statistics of the one --in-file; measure nothing."
)
@force_option
@load_options
def command(model: str, file: Path | None, in_files: tuple[str, ...], show_statistics: bool, **rest: Any) -> None:
    """Measure an importance matrix, for pumice quantize.

    It says how much each column of the model's matrices matters on a text. The text should resemble the use of the
    model; about 100 chunks of --ctx-size tokens (default: 512) are sufficient. --in-file adds the measurements of other
    files; without a text it adds them up.
    """
    from pumice.imatrix import ActivationSums, read_sums

    chunk_size = rest["n_ctx"] = rest["n_ctx"] or 512
    paths = [path for paths in in_files for path in split_commas(paths)]
    if show_statistics:
        if len(paths) != 1:
            raise click.UsageError("--show-statistics needs one --in-file")
        echo("\n".join(statistics_lines(read_sums(paths[0], chunk_size))))
        return
    if file is None and not paths:
        raise click.UsageError("give a text with --file, or --in-file")
    sums = ActivationSums(chunk_size=chunk_size)
    for path in paths:
        sums.merge(read_sums(path, chunk_size))
    output = ImatrixFile(rest.pop("out"), rest.pop("output_format"), rest.pop("force"), sums)
    frequencies = rest.pop("output_frequency"), rest.pop("save_frequency")
    if file is not None:
        text = read_prompt(None, file)
        sums.datasets.append(str(file))
        estimate = last(output.kept(measured(model, text, output, rest), *frequencies), running_line)
        echo(f"perplexity {estimate_line(estimate, chunk_size)}", err=True)
    output.save()
    echo(f"{output.path}: {counted_as(len(sums.tensors), 'tensor')}, {counted_as(sums.n_chunks, 'chunk')}", err=True)
    for name, count in sums.unreached.items():
        echo(f"{name}: {count} of {len(sums.tensors[name].counts)} experts were never chosen", err=True)


def measured(model: str, text: str, output: ImatrixFile, rest: dict[str, Any]) -> Iterator[Estimate]:
    """Read a text, add to the sums of ``output``, and yield the perplexity estimate after each chunk."""
    from pumice.evaluate.perplexity import perplexity
    from pumice.imatrix import Collector

    first, chunks, special = rest.pop("from_chunk"), rest.pop("chunks"), rest.pop("parse_special")
    rest["observer"] = collector = Collector(output.sums, rest.pop("process_output"))
    size = output.sums.chunk_size
    with load_model(model, rest) as loaded:
        output.check_room(collector.n_bytes)
        ids = text_ids(loaded, text, special)[first * size :]
        yield from perplexity(EveryRow(loaded), ids, size, bos=bos_of(loaded), n_chunks=chunks)


@dataclass(frozen=True)
class EveryRow:
    """A model that computes the logits of all rows, so that the input of the output matrix is measured."""

    model: Model

    def continuation_logits(
        self, beginning: Sequence[int], endings: Sequence[Sequence[int]]
    ) -> list[NDArray[np.float32]]:
        rows = (self.model.logits([*beginning, *ending])[len(beginning) - 1 : -1] for ending in endings)
        return list(rows)


class ImatrixFile:
    """The output file, checked before the measurement and saved repeatedly."""

    def __init__(self, path: Path, format: str | None, force: bool, sums: ActivationSums) -> None:
        from pumice.gguf.output import check_output

        check_output(path, force)
        self.path = path
        self._force = force
        self._saved: set[Path] = set()
        self._dat = (format or path.suffix) in ("dat", ".dat")
        self.sums = sums

    def check_room(self, n_bytes: int) -> None:
        """Raise GGUFError if the disk has no room for a file of ``n_bytes``."""
        from pumice.gguf.output import check_space

        check_space(self.path.resolve().parent, n_bytes)

    def save(self, path: Path | None = None) -> None:
        from pumice.imatrix import write_sums

        path = path or self.path
        write_sums(path, self.sums, dat=self._dat, force=self._force or path in self._saved)
        self._saved.add(path)

    def kept(self, estimates: Iterator[Estimate], every: int, copy_every: int) -> Iterator[Estimate]:
        """Yield the estimates; save the file every ``every`` chunks, and keep a numbered copy every ``copy_every``."""
        for estimate in estimates:
            n = estimate.n_chunks
            if n % every == 0:
                self.save()
            if copy_every and n % copy_every == 0:
                self.save(self.path.with_name(f"{self.path.name}.at_{n}"))
            yield estimate


def statistics_lines(sums: ActivationSums) -> list[str]:
    """Return the lines of two tables: tensors, the most active first, and layers."""
    from pumice.imatrix import layer_statistics, tensor_statistics

    tensors = tensor_statistics(sums)
    width = max((len(tensor.name) for tensor in tensors), default=6)
    lines = [
        f"{'tensor':{width}} {'sum':>12} {'min':>9} {'max':>11} {'mean':>10} {'sigma':>10} {'active':>8} {'n':>8}"
        f" {'entropy':>8} {'of max':>7} {'ZD':>7} {'cosine':>7}"
    ]
    for row in tensors:
        lines.append(
            f"{row.name:{width}} {row.total:12.2f} {row.low:9.4f} {row.high:11.4f} {row.mean:10.4f}"
            f" {row.deviation:10.4f} {row.active:8.2%} {row.n:8} {row.entropy:8.4f} {row.entropy_share:7.2%}"
            f" {row.z_density:7.2%} {row.similarity:7.4f}"
        )
    lines += ["", f"{'layer':>5} {'sum':>12} {'ZD':>7} {'cosine':>7}"]
    for layer in layer_statistics(tensors):
        lines.append(f"{layer.layer:5} {layer.total:12.2f} {layer.z_density:7.2%} {layer.similarity:7.4f}")
    return lines
