"""``pumice embed``."""

import json

import numpy as np
import pytest

import pumice
from vision_files import encoded, picture


def test_a_line_for_each_text(run, model):
    with pumice.load(model, backend="numpy") as loaded:
        expected = loaded.embed(["ab", "cd e"], pooling="mean")
    done = run("embed", model, "-p", "ab", "-p", "cd e", "--pooling", "mean", "--backend", "numpy")
    assert (done.returncode, done.stderr) == (0, "")
    found = np.array([line.split() for line in done.stdout.splitlines()], np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    long = ("embed", model, "-p", "ab " * 2000, "--backend", "numpy", "-c", "64")
    assert [run(*long, *more).returncode for more in ((), ("--truncate",))] == [1, 0]


def test_json_of_a_file(run, model, tmp_path):
    (tmp_path / "texts.txt").write_text("ab\n\ncd e\n")
    done = run("embed", model, "-f", str(tmp_path / "texts.txt"), "--dimensions", "3", "--json", "--backend", "numpy")
    assert np.array(json.loads(done.stdout)).shape == (2, 3)


def test_no_text_and_options_that_contradict_are_one_line(run, model, tmp_path):
    (tmp_path / "texts.txt").write_text("\n\n")
    done = run("embed", model, "-f", str(tmp_path / "texts.txt"))
    assert done.returncode == 2
    assert done.stderr.startswith("error: no text: give texts with -p, or one per line with -f or a pipe (see")
    done = run("embed", model, "ab")
    assert (done.returncode, done.stdout) == (2, "")
    assert "unexpected extra argument (ab); give each text with -p (see" in done.stderr
    done = run("embed", model, "-p", "ab", "--query", "cd", "--dimensions", "3")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: --query gives scores: --dimensions, --pooling and --no-normalize are for vectors"
    )


def test_images_are_inputs_of_their_own_or_within_a_text(run, tmp_path):
    pytest.importorskip("PIL")
    image = tmp_path / "a.png"
    image.write_bytes(encoded(picture(50, 30)))
    options = ("--backend", "numpy", "--json")
    with pumice.load(pumice.demo_model_path(vision=True), backend="numpy") as model:
        read = pumice.Image(image)
        expected = model.embed([read, "ab", ["ab", read, "cd"]])
    done = run("embed", "--image", str(image), "-p", "ab", *options)
    assert (done.returncode, done.stderr) == (0, "")
    np.testing.assert_allclose(json.loads(done.stdout), expected[:2], atol=1e-5)
    done = run("embed", "--image", str(image), "-p", "ab<__media__>cd", *options)
    np.testing.assert_allclose(json.loads(done.stdout), expected[2:], atol=1e-5)
    done = run("embed", "--image", str(image), "-p", "<__media__>", "-p", "<__media__>", *options)
    assert (done.returncode, done.stderr[:37]) == (2, "error: only one text may have marks <")
    done = run("embed", "--image", str(image), "-p", "ab", "--query", "cd", *options)
    assert (done.returncode, done.stderr[:27]) == (2, "error: --query scores texts")
