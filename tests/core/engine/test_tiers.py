"""Tiers behind the cache: prompts come back from host memory and from disk, bit for bit, or are read again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import pumice
from pumice.cache_tiers import Tally
from tiny_encoders import MODELS as ENCODERS
from tiny_zoo import ZOO

PROMPTS = [[(k * i + i // 5 + k) % 32 for i in range(70)] for k in (3, 7)]
OPTIONS: dict[str, Any] = {"n_ctx": 96, "n_batch": 64, "n_parallel": 1, "backend": "numpy"}
EXACT = {"numpy": {"batch_invariant": True}}  # results do not depend on how a prompt is divided into steps
N_CACHED = 64  # tokens of all but the last block


@pytest.fixture(params=["xverse q8_0", "gemma2 f16", "lfm2-window f32"])
def model_file(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A model's file, and options: attention, with a cache of blocks, with windows, with recurrent states."""
    name, kv_type = request.param.split()
    return ZOO[name].write(tmp_path / "model.gguf"), {**OPTIONS, "kv_type": kv_type, "config": EXACT}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return ZOO["xverse"].write(tmp_path / "model.gguf")


def answer(model: pumice.Model, prompt: Sequence[int], **options: Any) -> tuple[int, object]:
    """Return the number of cached tokens, and the tokens with their exact log-probabilities."""
    found = model.generate(prompt, max_tokens=2, temperature=0, logprobs=1, **options)
    return found.timings.prompt_cached, (found.tokens, found.logprobs)


def tallies(model: pumice.Model) -> dict[str, Tally]:
    """Tallies of the tiers, once everything is written."""

    def turns(engine: Any) -> Iterator[None]:
        while engine.cache.tiers.busy:
            yield engine.cache.tiers.write_behind(idle=True)
        yield from engine.cache.tiers.save(())  # returns once everything that is queued is on disk
        return dict(engine.cache.tiers.tallies)

    return model.engine.thread.call(turns)


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*-*"))


def test_prompts_come_back_from_memory_and_from_disk(model_file: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    path, options = model_file
    with pumice.load(path, **options) as model:
        read = [answer(model, prompt)[1] for prompt in PROMPTS]
    with pumice.load(path, cache_ram=16, cache_disk=str(tmp_path / "cache"), **options) as model:
        assert [answer(model, prompt) for prompt in PROMPTS] == [(0, found) for found in read]
        assert [answer(model, prompt) for prompt in PROMPTS] == [(N_CACHED, found) for found in read]
        counted = tallies(model)
    assert counted["ram"].n_loaded > 0 == counted["disk"].n_loaded
    assert counted["disk"].n_entries == len(files_of(tmp_path / "cache")) == counted["disk"].n_saved
    with pumice.load(path, cache_disk=str(tmp_path / "cache"), **options | {"n_parallel": 2}) as model:
        streams = [model.stream(prompt, max_tokens=2, temperature=0, logprobs=1) for prompt in PROMPTS]
        found = [stream.completion() for stream in streams]
        assert tallies(model)["disk"].n_saved == 0
    answers = [(each.timings.prompt_cached, (each.tokens, each.logprobs)) for each in found]
    assert answers == [(N_CACHED, each) for each in read]


def test_single_prompts_are_saved(model_file: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    path, options = model_file
    options["cache_saved"] = str(tmp_path / "cache")
    with pumice.load(path, cache_ram=16, **options) as model:
        read = [answer(model, prompt)[1] for prompt in PROMPTS]
        assert tallies(model)["disk"].n_saved == 0
        assert model.cache.save(PROMPTS[0]) == N_CACHED, "from host memory, or the device"
        n_saved = tallies(model)["disk"].n_saved
        assert model.cache.save(PROMPTS[0]) == N_CACHED
        assert model.cache.save(PROMPTS[0], cache_salt="other") == 0
        assert model.cache.save(PROMPTS[0][1:]) == 0
        assert tallies(model)["disk"].n_saved == n_saved == len(files_of(tmp_path / "cache"))
    with pumice.load(path, **options) as model:
        assert [answer(model, prompt) for prompt in PROMPTS] == [(N_CACHED, read[0]), (0, read[1])]


@pytest.mark.parametrize("error", [MemoryError(), pumice.BackendError("a copy failed")])
def test_lack_of_memory_costs_what_is_kept_alone(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object) -> None:
        raise error

    with pumice.load(path, cache_ram=16, cache_disk=str(tmp_path / "cache"), **OPTIONS) as model:
        read = [answer(model, prompt) for prompt in PROMPTS]
        n_saved = tallies(model)["disk"].n_saved
        with monkeypatch.context() as patch:
            patch.setattr(model.engine.runner.placed.main.program, "write_blocks", fails)
            patch.setattr(model.engine.runner.placed.main.program, "read_blocks", fails)
            assert answer(model, PROMPTS[0]) == read[0]
            assert answer(model, PROMPTS[0][::-1])[0] == 0
            counted = tallies(model)
        assert (counted["disk"].n_saved, counted["ram"].limit_bytes < 16 * 2**20) == (n_saved, True)
        assert answer(model, PROMPTS[1]) == (N_CACHED, read[1][1])


@pytest.mark.parametrize("damage", ["shorter", "changed", "link", "folder"])
def test_a_damaged_file_costs_reading_the_prompt_again(path: Path, tmp_path: Path, damage: str) -> None:
    folder, prompt = tmp_path / "cache", PROMPTS[0]
    with pumice.load(path, cache_disk=str(folder), **OPTIONS) as model:
        read = model.generate(prompt, max_tokens=2, temperature=0).tokens
        tallies(model)
    for file in files_of(folder):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.unlink()
        if damage == "link":
            (tmp_path / "elsewhere").write_bytes(content)
            file.symlink_to(tmp_path / "elsewhere")
        elif damage == "folder":
            file.mkdir()
        else:
            file.write_bytes(content if damage == "changed" else content[:-1])
    with pumice.load(path, cache_disk=str(folder), **OPTIONS) as model:
        found = model.generate(prompt, max_tokens=2, temperature=0)
        tallies(model)
    assert (found.timings.prompt_cached, found.tokens) == (0, read)
    n_cached = 0 if damage == "folder" else N_CACHED  # a folder is nobody's to remove
    with pumice.load(path, cache_disk=str(folder), **OPTIONS) as model:
        found = model.generate(prompt, max_tokens=2, temperature=0)
    assert (found.timings.prompt_cached, found.tokens) == (n_cached, read), "all damaged files were written again"


def test_settings_that_change_values_change_the_key(path: Path, tmp_path: Path) -> None:
    other = ZOO["internlm2"].write(tmp_path / "other.gguf")
    options = {**OPTIONS, "cache_disk": str(tmp_path / "cache")}

    def n_cached(file: Path = path, salt: str = "", **more: Any) -> int:
        with pumice.load(file, **options | more) as model:
            n = answer(model, PROMPTS[0], cache_salt=salt)[0]
            tallies(model)
            return n

    assert [n_cached(), n_cached()] == [0, N_CACHED]
    assert n_cached(n_gpu_layers=0) == N_CACHED, "the placement is the same"
    assert [n_cached(kv_type="f32"), n_cached(salt="a"), n_cached(other), n_cached(n_ctx=128)] == [0] * 4
    assert [n_cached(salt="a"), n_cached(), n_cached(kv_rotate=False)] == [N_CACHED] * 3
    assert n_cached(override_kv={"llama.rope.freq_base": 5000.0}) == 0
    other.replace(path)
    assert n_cached() == 0


@pytest.mark.parametrize("kept", ["cache_ram", "cache_disk", "cache_saved", ""])
def test_a_cache_that_cannot_leave_a_device_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kept: str
) -> None:
    options = {kept: 16 if kept == "cache_ram" else str(tmp_path / "cache")} if kept else {}
    with pumice.load(ENCODERS["bert"].write(tmp_path / "model.gguf"), backend="numpy", **options):
        said = [record.getMessage().partition(",")[0] for record in caplog.records]
        assert said == ([f"{kept}: not used: on numpy"] if kept else [])


def test_rotated_and_plain_caches_do_not_mix(demo_model: Callable[[str], Path], tmp_path: Path) -> None:
    options = {**OPTIONS, "kv_type": "q4_0", "cache_disk": str(tmp_path / "cache")}

    def n_cached(rotate: bool) -> int:
        with pumice.load(demo_model("Q8_0"), kv_rotate=rotate, **options) as model:
            n = answer(model, PROMPTS[0])[0]
            tallies(model)
            return n

    assert [n_cached(rotate) for rotate in (True, False, True, False)] == [0, 0, N_CACHED, N_CACHED]
