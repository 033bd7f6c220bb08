"""``pumice speak``: files of sound, and what is refused before a model is loaded."""

import wave

import numpy as np

from speaking_models import write_speaking


def test_speak_writes_a_file(run, tmp_path):
    model = str(write_speaking(tmp_path / "model"))
    out = tmp_path / "hello.wav"
    done = run("speak", "Hi.", model, "-o", str(out), "--max-seconds", "0.01", "--seed", "3", "--backend", "numpy")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, f"{out}: 0.0 s")
    with wave.open(str(out)) as file:
        samples = np.frombuffer(file.readframes(10**6), "<i2")
    assert len(samples) == 240
    assert np.abs(samples).max() > 1000
    again = run("speak", "Hi.", model, "-o", str(out), "--backend", "numpy")
    assert "exists already; give --force to replace it" in again.stderr


def test_formats_are_known_by_the_name(run, tmp_path):
    for name in ("a.aac", "a"):
        done = run("speak", "Hi.", "-o", str(tmp_path / name))
        assert done.returncode == 1
        assert "choose wav, flac, mp3, opus or pcm" in done.stderr
    assert "Missing option '-o'" in run("speak", "Hi.").stderr
