"""No block or sequence is lost, however requests come and go; ``bench/soak.py`` runs for an hour."""

import sys

import pytest

import soaking
from gguf_files import tiny_llama

EXACT = {"backend": "numpy", "kv_type": "f32"}
SECONDS = 4
MEMORY = 64 * 2**20  # bytes that a short time may add


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_many_clients_for_a_while(tmp_path):
    path = tiny_llama(tmp_path / "tiny.gguf")
    known = soaking.cases(path, 300, EXACT)
    outcome = soaking.soak(path, known, n_clients=16, seconds=SECONDS, settings=EXACT)
    tally = outcome.tally
    assert outcome.lost == []
    assert tally.wrong == []
    assert tally.has_all, tally
    assert soaking.grown(outcome.held) < MEMORY
    assert len({each.arenas for each in outcome.held}) == 1
