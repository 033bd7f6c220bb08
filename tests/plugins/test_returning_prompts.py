"""Prompts whose blocks left the device for host memory and came back: bit for bit, and so with the same logits.

A prompt that is divided at the same place, computed or returned, has steps of the same shapes. Results of other shapes
may be rounded differently, with tiers and without.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pumice
from nightly import variants
from pumice.engine.cache.tiers import STATES
from pumice_vulkan import VulkanBackend
from tiny_zoo import ZOO

N_CACHED = 64  # tokens of the whole blocks that a prompt and its return share
BEGINNING, OTHER = ([(k * i + i // 5 + k) % 32 for i in range(70)] for k in (3, 7))
PROMPT = [*BEGINNING[:N_CACHED], 9, 4, 1, 22, 17, 8]
OPTIONS: dict[str, Any] = {"n_ctx": 96, "n_batch": N_CACHED, "n_parallel": 1}

Blocks = dict[tuple[int, bytes], bytes]


@pytest.fixture(params=["cpu", "vulkan"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PUMICE_VULKAN_SOFTWARE", "1")
    if request.param == "vulkan" and (reason := VulkanBackend.unavailable()):
        (pytest.fail if os.environ.get("PUMICE_REQUIRE_VULKAN") else pytest.skip)(reason)
    return str(request.param)


def blocks_of(model: pumice.Model) -> Blocks:
    """Return the bytes of each published whole block on the device, by its attention window and key."""

    def turns(engine: Any) -> Iterator[None]:
        yield
        tiers, read = engine.cache.tiers, engine.runner.placed.main.program.read_blocks
        places = {key: tiers._place(*key) for key in tiers._offered if key[0] != STATES}
        return {key: read(key[0], [place]).tobytes() for key, place in places.items() if place is not None}

    blocks: Blocks = model.engine.thread.call(turns)
    return blocks


def answer(model: pumice.Model, prompt: list[int]) -> tuple[int, object]:
    found = model.generate(prompt, max_tokens=4, temperature=0, logprobs=4)
    return found.timings.prompt_cached, (found.tokens, found.logprobs)


DAILY = [("xverse", "f32"), ("xverse", "q8_0"), ("gemma2", "f16"), ("lfm2-window", "f16")]


@pytest.mark.parametrize(("name", "kv_type"), variants([*DAILY, ("xverse", "f16"), ("xverse", "q5_1")], DAILY))
def test_prompts_return_bit_for_bit(backend: str, name: str, kv_type: str, tmp_path: Path) -> None:
    path = ZOO[name].write(tmp_path / "model.gguf")
    with pumice.load(path, cache_ram=16, backend=backend, kv_type=kv_type, **OPTIONS) as model:
        expected = answer(model, PROMPT)
        computed = blocks_of(model)
        assert (expected[0], answer(model, OTHER)[0]) == (0, 0)
        between = blocks_of(model)
        assert answer(model, BEGINNING)[0] == N_CACHED, "another end of the same blocks"
        returned = blocks_of(model)
        assert answer(model, OTHER)[0] == N_CACHED
        assert answer(model, PROMPT) == (N_CACHED, expected[1])
    again = computed.keys() & returned.keys() - between.keys()
    assert {window for window, _ in again} == {window for window, _ in computed}
    assert {key: returned[key] for key in again} == {key: computed[key] for key in again}
