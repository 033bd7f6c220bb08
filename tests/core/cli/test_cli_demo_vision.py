"""The demo model that sees, which is in the package: pictures that it was not trained on."""

import itertools
from random import Random

import pytest

import pumice

pytest.importorskip("PIL")
from tools.demo_vision.measure import measure
from tools.demo_vision.scenes import draw, scenes
from tools.demo_vision.sentences import NO_PICTURE, contents, description

MODEL = pumice.demo_model_path(vision=True)
NUMPY = ("--temp", "0", "--backend", "numpy")
N_PICTURES = 4


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    """A scene, and the file of its picture."""
    scene, path = next(scenes(7, 0)), tmp_path_factory.mktemp("pictures") / "picture.png"
    draw(scene, Random(7)).save(path)
    return scene, path


def test_it_sees_what_is_in_pictures():
    with pumice.load(MODEL, backend="numpy") as model:
        right, failures = measure(model, 7, N_PICTURES, temperature=0.0)
    n_right = sum(int(counts.partition(" ")[0]) for counts in right.values())
    assert n_right >= 0.95 * N_PICTURES * len(right), failures


def test_run_with_an_image_needs_no_model(run, picture):
    scene, path = picture
    done = run("run", "--image", str(path), *NUMPY)
    assert (done.returncode, done.stdout) == (0, description(scene))
    assert "note:" not in done.stderr
    done = run("run", "--image", str(path), "-p", "A picture of", *NUMPY)
    assert done.stdout == f" {contents(scene)}."


def test_a_chat_about_two_pictures():
    messages = []
    with pumice.load("pumice-demo-vision", backend="numpy") as model:
        for scene in itertools.islice(scenes(8, 0), 2):
            picture = pumice.Image(draw(scene, Random(8)))
            messages.append({"role": "user", "content": [picture, "What do you see?"]})
            answer = model.chat(messages, temperature=0).message
            assert answer.content == description(scene)
            messages.append({"role": "assistant", "content": answer.content})
        blind = model.chat([{"role": "user", "content": "What is this?"}], temperature=0)
    assert blind.message.content == NO_PICTURE
