"""Make tests/fixtures/libmtmd_sounds.npz: rows of a sound by llama.cpp's libmtmd, for projectors of the hearing tests.

    python tests/make_fixtures/libmtmd_sounds.py path/to/libmtmd.so vocabulary.gguf [type...]

It needs Pumice and gguf, and llama.cpp's libraries in one folder; the vocabulary is any model's. It also writes the
column of libmtmd in the table of docs/media_types.md.
"""

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from libmtmd import encoded, functions, write_column

from hearing_models import CASES, RATE
from libmtmd_cases import difference
from libmtmd_sounds import FIXTURE, KINDS, NOT_RUN, of_same_codes, our_rows, sound_of, write_file

AUDIO_CHUNK = 2
N_COLUMNS = 6  # of the table


def rows_of(library: Path, vocabulary: Path, projector: Path, width: int, rate: int) -> np.ndarray:
    mtmd = functions(library)
    samples = np.ascontiguousarray(sound_of(rate))
    bitmap = mtmd.mtmd_bitmap_init_from_audio(len(samples), samples.ctypes.data_as(ctypes.c_void_p))
    return encoded(mtmd, vocabulary, projector, bitmap, AUDIO_CHUNK, width)


if __name__ == "__main__":
    if sys.argv[1] == "--encode":
        np.save(sys.argv[6], rows_of(*map(Path, sys.argv[2:5]), int(sys.argv[5]), int(sys.argv[7])))
        sys.exit()
    library, vocabulary, *names = sys.argv[1:]
    stored = dict(np.load(FIXTURE)) if FIXTURE.exists() else {}
    found: dict[str, float] = {}
    for name in names or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            projector, out = write_file(Path(folder), KINDS[name]), Path(folder) / "rows.npy"
            ours, rate = our_rows(projector), CASES[KINDS[name]].get("rate", RATE)
            command = [sys.executable, __file__, "--encode", library, vocabulary, projector, ours.shape[1], out, rate]
            subprocess.run([str(part) for part in command], capture_output=True, check=True)
            stored[name] = np.load(out)[: len(ours)]
        found[name] = difference(*of_same_codes(name, ours, stored[name]))
        print(name, ours.shape, found[name], flush=True)
    np.savez_compressed(FIXTURE, **stored)
    write_column(found, "## Types of sound encoders", N_COLUMNS, NOT_RUN)
