"""Make tests/fixtures/diffusion.json: what llama.cpp's diffusion example makes of the tiny models that fill masks.

    python tests/make_fixtures/diffusion.py    (needs a C++ compiler, llama.cpp's sources and its built libraries,
                                                named by LLAMA_CPP_SOURCE and LLAMA_CPP_LIB_PATH)

A chain of the likeliest token alone: every position is equally sure, so that the schedule decides their order.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
from diffusion_cases import CASES, N_NEW, PROMPT, Filling, fillable  # noqa: E402

DRIVER = r"""
#include "diffusion.h"
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int, char ** argv) {
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_backend_init();
    llama_model * model = llama_model_load_from_file(argv[1], llama_model_default_params());
    llama_context_params settings = llama_context_default_params();
    settings.n_ctx = settings.n_batch = settings.n_ubatch = 256;
    settings.type_k = settings.type_v = GGML_TYPE_F32;
    settings.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context * context = llama_init_from_model(model, settings);
    diffusion_params how;
    how.max_length = atoi(argv[2]);
    how.steps = atoi(argv[3]);
    how.block_length = atoi(argv[4]);
    how.cfg_scale = atof(argv[5]);
    how.shift_logits = atoi(argv[6]);
    how.mask_token_id = atoi(argv[7]);
    how.eps = 1e-3f;
    how.schedule = how.block_length ? DIFFUSION_TRANSFER_SCHEDULE_BLOCK_BASED
                                    : DIFFUSION_TRANSFER_SCHEDULE_TIMESTEP_BASED;
    how.top_k = 1;
    how.top_p = 1.0f;
    std::vector<llama_token> prompt, out(how.max_length);
    for (char ** id = argv + 8; *id; id++) prompt.push_back(atoi(*id));
    int32_t n = 0;
    diffusion_generate(context, prompt.data(), out.data(), prompt.size(), how, n);
    for (size_t i = prompt.size(); i < out.size(); i++) printf("%d ", out[i]);
}
"""


def main() -> None:
    source, libraries = Path(os.environ["LLAMA_CPP_SOURCE"]), os.environ["LLAMA_CPP_LIB_PATH"]
    with tempfile.TemporaryDirectory() as folder:
        driver = Path(folder) / "driver"
        driver.with_suffix(".cpp").write_text(DRIVER)
        example = source / "examples" / "diffusion"
        includes = [f"-I{source / part}" for part in ("include", "ggml/include", "common", "vendor", example)]
        files = [str(driver.with_suffix(".cpp")), str(example / "diffusion.cpp")]
        linked = [f"-L{libraries}", "-lllama-common", "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{libraries}"]
        subprocess.run(["g++", "-O1", "-std=c++17", *includes, *files, *linked, "-o", str(driver)], check=True)
        found = {name: filled(driver, name, case, Path(folder)) for name, case in CASES.items()}
    (TESTS / "fixtures" / "diffusion.json").write_text(json.dumps(found, indent=1) + "\n")


def filled(driver: Path, name: str, case: Filling, folder: Path) -> list[int]:
    """The tokens after the prompt. llama.cpp counts blocks from the text's beginning, ours from the prompt's end."""
    length, steps = len(PROMPT) + N_NEW, case.steps
    if case.block_length:
        steps = steps // (N_NEW // case.block_length) * (length // case.block_length)
    path = fillable(case).write(folder / f"{name}.gguf")
    arguments = [path, length, steps, case.block_length or 0, case.cfg_scale, int(case.shifted), case.mask, *PROMPT]
    output = subprocess.run([driver, *map(str, arguments)], check=True, capture_output=True, text=True)
    return [int(token) for token in output.stdout.split()]


if __name__ == "__main__":
    main()
