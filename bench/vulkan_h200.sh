#!/usr/bin/env bash
# All that one GPU has to show, in one go: devices, the tests of the Vulkan backend, and tokens/s with the time of each kernel.
#
#   bench/vulkan_h200.sh [devices] [tests] [archs] [llama-1b:Q4_0 llama-1b:Q4_K_M llama-1b:Q8_0 llama-8b:Q4_K_M ...]
#
# SYNTH: synth_gguf.py, which writes models with random weights; VOCAB: a GGUF file with their tokenizer; ARCHS: a folder
# of small models with expected_logits.npz; OUT: where results go. PYTHON: an interpreter with the dependencies.
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH=core:plugins:tests${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
PYTHON=${PYTHON:-python3} OUT=${OUT:-/tmp/pumice-vulkan} MODELS=${MODELS:-/tmp/pumice-models}
mkdir -p "$OUT" "$MODELS"

pumice() { "$PYTHON" -m pumice "$@"; }

archs() {
    "$PYTHON" - "$ARCHS" <<'PY'
import sys
from pathlib import Path
import numpy as np
import pumice

folder = Path(sys.argv[1])
ids = [(7 * i + 3) % 128 for i in range(24)]
with np.load(folder / "expected_logits.npz") as expected:
    for name in expected.files:
        if not (folder / f"{name}.gguf").exists():
            continue
        errors = []
        for activations, n_batch in (("float", 32), ("float", 4), ("int8", 4)):
            config = {"vulkan": {"activations": activations}}
            try:
                options = {"backend": "vulkan", "kv_type": "f32", "n_ctx": 64, "n_batch": n_batch, "config": config}
                with pumice.load(folder / f"{name}.gguf", **options) as model:
                    found, backends = model.logits(ids), model.backends
                errors.append(f"{np.mean((found - expected[name]) ** 2) / np.mean(expected[name] ** 2):.1e}")
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}")
                backends = []
        print(f"{name:18}", *errors, *backends, flush=True)
PY
}

for step in "${@:-devices}"; do
    echo "=== $step"
    case $step in
    devices) pumice devices ;;
    tests) "$PYTHON" -m pytest -q -p no:cacheprovider tests/plugins/vulkan ;;
    archs) archs ;;
    *:*)
        model=${step%%:*} type=${step##*:} path=$MODELS/${step/:/-}.gguf
        [ -f "$path" ] || "$PYTHON" "$SYNTH" "$path" --model "$model" --type "$type" --vocab "$VOCAB"
        pumice bench "$path" --backend vulkan -p 512 -n 128 -r "${REPETITIONS:-3}" --profile
        ;;
    *) echo "unknown step $step" >&2 ;;
    esac 2>&1 | tee "$OUT/${step/:/-}.log"
done
