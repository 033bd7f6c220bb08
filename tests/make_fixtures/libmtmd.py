"""Make tests/fixtures/libmtmd.npz: rows of pictures by llama.cpp's libmtmd, for the projectors of the vision tests.

    python tests/make_fixtures/libmtmd.py path/to/libmtmd.so vocabulary.gguf [case...]

It needs Pumice, Pillow and gguf, and llama.cpp's libraries in one folder; the vocabulary is any model's. For all cases
it also writes the column of libmtmd in the table of docs/media_types.md.
"""

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from libmtmd_cases import (
    ALL,
    DOCS,
    FIXTURE,
    LIMITS,
    NOT_RUN,
    difference,
    for_libmtmd,
    our_rows,
    picture_of,
    projector_type,
    rounded_up,
    without_breaks,
    write_file,
)

N_THREADS = 2
IMAGE_CHUNK = 1
N_COLUMNS = 6  # of the table


class ContextParams(ctypes.Structure):
    """``mtmd_context_params`` of llama.cpp b10046."""

    _fields_ = (
        ("use_gpu", ctypes.c_bool),
        ("device", ctypes.c_void_p),
        ("print_timings", ctypes.c_bool),
        ("n_threads", ctypes.c_int),
        ("image_marker", ctypes.c_char_p),
        ("media_marker", ctypes.c_char_p),
        ("flash_attn_type", ctypes.c_int),
        ("warmup", ctypes.c_bool),
        ("image_min_tokens", ctypes.c_int),
        ("image_max_tokens", ctypes.c_int),
        ("cb_eval", ctypes.c_void_p),
        ("cb_eval_user_data", ctypes.c_void_p),
        ("batch_max_tokens", ctypes.c_int32),
        ("progress_callback", ctypes.c_void_p),
        ("progress_callback_user_data", ctypes.c_void_p),
    )


class ModelParams(ctypes.Structure):
    """``llama_model_params`` of the same version."""

    _fields_ = (
        ("devices", ctypes.c_void_p),
        ("tensor_buft_overrides", ctypes.c_void_p),
        ("n_gpu_layers", ctypes.c_int32),
        ("split_mode", ctypes.c_int),
        ("load_mode", ctypes.c_int),
        ("lazy_mode", ctypes.c_int),
        ("main_gpu", ctypes.c_int32),
        ("tensor_split", ctypes.c_void_p),
        ("progress_callback", ctypes.c_void_p),
        ("progress_callback_user_data", ctypes.c_void_p),
        ("kv_overrides", ctypes.c_void_p),
        *((name, ctypes.c_bool) for name in ("vocab_only", "check_tensors", "use_extra_bufts", "no_host", "no_alloc")),
        ("load_mtp", ctypes.c_bool),
    )


class Text(ctypes.Structure):
    """``mtmd_input_text``."""

    _fields_ = (
        ("text", ctypes.c_char_p),
        ("text_len", ctypes.c_size_t),
        ("add_special", ctypes.c_bool),
        ("parse_special", ctypes.c_bool),
    )


def functions(library: Path) -> ctypes.CDLL:
    """Return libmtmd, whose functions have the types that are used here."""
    ctypes.CDLL(str(library.with_name("libllama.so")), ctypes.RTLD_GLOBAL)
    mtmd, pointer = ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL), ctypes.c_void_p
    types = {
        "llama_model_default_params": (ModelParams, []),
        "llama_model_load_from_file": (pointer, [ctypes.c_char_p, ModelParams]),
        "mtmd_context_params_default": (ContextParams, []),
        "mtmd_init_from_file": (pointer, [ctypes.c_char_p, pointer, ContextParams]),
        "mtmd_bitmap_init": (pointer, [ctypes.c_uint32, ctypes.c_uint32, ctypes.c_char_p]),
        "mtmd_bitmap_init_from_audio": (pointer, [ctypes.c_size_t, pointer]),
        "mtmd_input_chunks_init": (pointer, []),
        "mtmd_tokenize": (ctypes.c_int32, [pointer, pointer, pointer, pointer, ctypes.c_size_t]),
        "mtmd_input_chunks_size": (ctypes.c_size_t, [pointer]),
        "mtmd_input_chunks_get": (pointer, [pointer, ctypes.c_size_t]),
        "mtmd_input_chunk_get_type": (ctypes.c_int, [pointer]),
        "mtmd_input_chunk_get_n_tokens": (ctypes.c_size_t, [pointer]),
        "mtmd_encode_chunk": (ctypes.c_int32, [pointer, pointer]),
        "mtmd_get_output_embd": (ctypes.POINTER(ctypes.c_float), [pointer]),
        "mtmd_default_marker": (ctypes.c_char_p, []),
    }
    for name, (result, arguments) in types.items():
        function = getattr(mtmd, name)
        function.restype, function.argtypes = result, arguments
    return mtmd


def encode(library: Path, vocabulary: Path, projector: Path, kind: str, width: int) -> np.ndarray:
    """Return the rows of a case's picture, of ``width`` values."""
    mtmd = functions(library)
    pixels = picture_of(kind)
    bitmap = mtmd.mtmd_bitmap_init(pixels.shape[1], pixels.shape[0], pixels.tobytes())
    return encoded(mtmd, vocabulary, projector, bitmap, IMAGE_CHUNK, width, LIMITS.get(kind))


def encoded(
    mtmd: ctypes.CDLL, vocabulary: Path, projector: Path, bitmap: int, type: int, width: int,
    limits: tuple[int, int] | None = None,
) -> np.ndarray:  # fmt: skip
    """Return the rows of a picture or a sound.

    Args:
        mtmd: the library.
        vocabulary: any model.
        projector: the file.
        bitmap: the library's picture or sound.
        type: number of the type of its chunks.
        width: values of a row.
        limits: fewest and most tokens of a picture.
    """
    params = mtmd.llama_model_default_params()
    params.vocab_only = True
    model = mtmd.llama_model_load_from_file(str(vocabulary).encode(), params)
    settings = mtmd.mtmd_context_params_default()
    settings.use_gpu, settings.n_threads, settings.warmup = False, N_THREADS, False
    if limits:
        settings.image_min_tokens, settings.image_max_tokens = limits
    context = mtmd.mtmd_init_from_file(str(projector).encode(), model, settings)
    chunks, marker = mtmd.mtmd_input_chunks_init(), mtmd.mtmd_default_marker()
    text = Text(marker, len(marker), False, True)
    assert mtmd.mtmd_tokenize(context, chunks, ctypes.byref(text), (ctypes.c_void_p * 1)(bitmap), 1) == 0
    rows = []
    for i in range(mtmd.mtmd_input_chunks_size(chunks)):
        chunk = mtmd.mtmd_input_chunks_get(chunks, i)
        if mtmd.mtmd_input_chunk_get_type(chunk) != type:
            continue
        assert mtmd.mtmd_encode_chunk(context, chunk) == 0
        n = mtmd.mtmd_input_chunk_get_n_tokens(chunk)
        rows.append(np.ctypeslib.as_array(mtmd.mtmd_get_output_embd(context), (n, width)).copy())
    return np.concatenate(rows)


def compared(kind: str, library: Path, vocabulary: Path) -> tuple[str, np.ndarray, float]:
    """Return a case's type, libmtmd's rows by a process of their own, since llama.cpp may abort, and the difference."""
    with tempfile.TemporaryDirectory() as folder:
        projector, out = write_file(Path(folder), kind), Path(folder) / "rows.npy"
        ours = our_rows(projector, kind)
        read = for_libmtmd(projector, kind)
        command = [sys.executable, __file__, "--encode", library, vocabulary, read, kind, ours.shape[1], out]
        subprocess.run([str(part) for part in command], capture_output=True, check=True)
        theirs = without_breaks(kind, np.load(out))
        return projector_type(projector), theirs, difference(ours, theirs)


def write_column(found: dict[str, float], heading: str, n_columns: int, not_run: dict[str, str]) -> None:
    """Write the column of libmtmd, the last but one, in the table below a heading of the documentation."""
    before, _, rest = DOCS.read_text().partition(f"{heading}\n")
    table, mark, after = rest.partition("\n## ")
    lines = table.splitlines(keepends=True)
    for i, line in enumerate(lines):
        name = line.partition("`")[2].partition("`")[0]
        cells = line.rstrip("\n").split(" | ")
        if line.startswith("| `") and len(cells) == n_columns and (name in found or name in not_run):
            cells[-2] = rounded_up(found[name]) if name in found else not_run[name]
            lines[i] = " | ".join(cells) + "\n"
    DOCS.write_text(f"{before}{heading}\n{''.join(lines)}{mark}{after}")


if __name__ == "__main__":
    if sys.argv[1] == "--encode":
        np.save(sys.argv[7], encode(*map(Path, sys.argv[2:5]), sys.argv[5], int(sys.argv[6])))
        sys.exit()
    library, vocabulary, *names = sys.argv[1:]
    stored = dict(np.load(FIXTURE)) if FIXTURE.exists() and names else {}
    found: dict[str, float] = {}
    for kind in names or ALL:
        name, rows, value = compared(kind, Path(library), Path(vocabulary))
        print(kind, name, rows.shape, value, flush=True)
        stored[kind], found[name] = rows, max(found.get(name, 0.0), value)
    np.savez_compressed(FIXTURE, **stored)
    if not names:
        write_column(found, "## Projector types", N_COLUMNS, NOT_RUN)
