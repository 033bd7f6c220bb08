"""Quantizing models: what each tensor becomes, and making it so."""

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from pumice.config import load_config
from pumice.errors import QuantizeError
from pumice.gguf import GGUFFile
from pumice.gguf.writer import Described
from pumice.opening import open_model
from pumice.quantize.decide import Decision, Options, missing_weights
from pumice.quantize.file_types import COPY, FILE_TYPES, FileType, file_type, tensor_type
from pumice.quantize.imatrix import ImportanceMatrix, read_imatrix
from pumice.quantize.plan import Plan, make_plan
from pumice.quantize.run import run
from pumice.registry import get_registry

__all__ = [
    "COPY",
    "FILE_TYPES",
    "Decision",
    "FileType",
    "ImportanceMatrix",
    "Options",
    "Plan",
    "file_type",
    "make_plan",
    "plan_quantization",
    "quantize",
    "read_imatrix",
    "tensor_type",
]


def plan_quantization(
    file: GGUFFile, to: str, *, imatrix: ImportanceMatrix | None = None, options: Options | None = None
) -> Plan:
    """What ``quantize`` would make of an opened file; tensors may lack weights that they need (`missing_weights`)."""
    return make_plan(file, None if to.upper() == COPY else file_type(to), imatrix, options or Options())


def quantize(
    path: str | os.PathLike[str] | GGUFFile,
    out: str | os.PathLike[str],
    to: str,
    *,
    imatrix: ImportanceMatrix | str | os.PathLike[str] | None = None,
    options: Options | None = None,
    threads: int | None = None,
    parts: Callable[[Sequence[Described]], list[int]] | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Write the model at ``path``, or one that is open, to ``out`` in another type, and return what was done.

    to: a name of `FILE_TYPES` or ``COPY``, in any case. imatrix: one that was read, or its file.
    threads: None: as many as there are cores. parts: how many tensors each part of a split model gets, of all in order.
    force: replace a file that is there.
    progress: called with the bytes read so far and the bytes to read.

    The bytes are llama-quantize's. All decisions are made and checked before anything is written; after an error there
    is no file, or the one that was there before. Raises QuantizeError and GGUFError.
    """
    if imatrix is not None and not isinstance(imatrix, ImportanceMatrix):
        imatrix = read_imatrix(imatrix)
    with nullcontext(path) if isinstance(path, GGUFFile) else open_model(path) as file:
        if _is_same_file(out, file.path):
            raise QuantizeError(f"{out}: is the model itself, which would be lost: give another name")
        plan = plan_quantization(file, to, imatrix=imatrix, options=options)
        if parts is not None:
            plan = replace(plan, parts=parts([decision.info for decision in plan.decisions]))
        for decision in missing_weights(plan.decisions):
            becomes = f"tensor {decision.source.name!r} becomes {decision.info.type.name}"
            raise QuantizeError(f"{file.path}: {becomes}, which needs an importance matrix: pumice imatrix makes one")
        run(plan, out, get_registry(load_config()).quantizers, threads=threads, force=force, progress=progress)
    return plan


def _is_same_file(out: str | os.PathLike[str], model: Path) -> bool:
    try:
        return os.path.samefile(out, model)
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        raise QuantizeError(f"{out}: cannot be compared with {model}: {error}") from None
