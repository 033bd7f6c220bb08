"""Quantize models: decide on the type of each tensor, and carry the decisions out."""

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from pumice.config import load_config
from pumice.errors import QuantizeError
from pumice.gguf import GGUFFile
from pumice.gguf.file_types import COPY, FILE_TYPES, FileType, file_type, tensor_type
from pumice.gguf.writer import Described
from pumice.model_files.opening import open_model
from pumice.quantize.decide import Decision, QuantizeOptions, missing_weights
from pumice.quantize.imatrix import ImportanceMatrix, read_imatrix
from pumice.quantize.plan import QuantizationPlan, make_plan
from pumice.quantize.run import run
from pumice.registry import get_registry

__all__ = [
    "COPY",
    "FILE_TYPES",
    "Decision",
    "FileType",
    "ImportanceMatrix",
    "QuantizationPlan",
    "QuantizeOptions",
    "file_type",
    "make_plan",
    "plan_quantization",
    "quantize",
    "read_imatrix",
    "tensor_type",
]


def plan_quantization(
    file: GGUFFile, to: str, *, imatrix: ImportanceMatrix | None = None, options: QuantizeOptions | None = None
) -> QuantizationPlan:
    """Return the plan of ``quantize`` for an open file; tensors may lack required weights (`missing_weights`)."""
    return make_plan(file, None if to.upper() == COPY else file_type(to), imatrix, options or QuantizeOptions())


def quantize(
    path: str | os.PathLike[str] | GGUFFile,
    out: str | os.PathLike[str],
    to: str,
    *,
    imatrix: ImportanceMatrix | str | os.PathLike[str] | None = None,
    options: QuantizeOptions | None = None,
    threads: int | None = None,
    parts: Callable[[Sequence[Described]], list[int]] | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> QuantizationPlan:
    """Quantize a model to ``out``, with the same bytes as llama-quantize, and return the plan.

    All decisions are made and checked before anything is written. After an error ``out`` is unchanged.

    Args:
        path: path of the model, or an open file.
        out: path of the new file.
        to: a name in `FILE_TYPES`, or ``COPY``, in any case.
        imatrix: importance matrix, or path of its file.
        options: options of the quantization.
        threads: number of threads; None: one per core.
        parts: returns the number of tensors in each part of a split model.
        force: replace an existing file.
        progress: called with the bytes read so far and the bytes to read.

    Raises:
        QuantizeError: the model cannot be quantized as requested.
        GGUFError: a file cannot be read or written.
    """
    if imatrix is not None and not isinstance(imatrix, ImportanceMatrix):
        imatrix = read_imatrix(imatrix)
    with nullcontext(path) if isinstance(path, GGUFFile) else open_model(path) as file:
        if _is_same_file(out, file.path):
            raise QuantizeError(f"{out}: this is the model itself, which would be overwritten; give another name")
        plan = plan_quantization(file, to, imatrix=imatrix, options=options)
        if parts is not None:
            plan = replace(plan, parts=parts([decision.info for decision in plan.decisions]))
        for decision in missing_weights(plan.decisions):
            becomes = f"tensor {decision.source.name!r} becomes {decision.info.type.name}"
            raise QuantizeError(
                f"{file.path}: {becomes}, which needs an importance matrix; make one with pumice imatrix"
            )
        run(plan, out, get_registry(load_config()).quantizers, threads=threads, force=force, progress=progress)
    return plan


def _is_same_file(out: str | os.PathLike[str], model: Path) -> bool:
    try:
        return os.path.samefile(out, model)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise QuantizeError(f"{error.filename}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise QuantizeError(f"{out!r}: {error}") from None
