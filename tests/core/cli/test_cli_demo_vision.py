"""The demo model that sees, which is in the package: pictures that it was not trained on."""

import itertools
import json
from random import Random

import numpy as np
import pytest

import pumice
from pumice.cli.chat import sessions
from pumice.cli.chat.conversation import Conversation
from pumice.cli.chat.session import Session

pytest.importorskip("PIL")
from tools.demo_vision.measure import measure
from tools.demo_vision.scenes import draw, fitted, scenes
from tools.demo_vision.sentences import NO_PICTURE, contents, description

from pumice_architectures.vision.idefics3 import Idefics3

MODEL = pumice.demo_model_path(vision=True)
NUMPY = ("--temp", "0", "--backend", "numpy")
N_PICTURES = 8


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


def test_a_kept_chat_shows_images(picture, home, monkeypatch, capfdbinary):
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    sessions.make_sessions_folder()
    _, path = picture
    lines = iter([f"/image {path}", "What is in the picture?", "And where?"])
    with pumice.load(MODEL, backend="numpy") as model:
        conversation = Conversation(model, {"temperature": 0.0, "max_tokens": 24})
        Session(conversation, lambda: next(lines, "/quit"), name="last").run()
    errors = capfdbinary.readouterr()[1].decode()
    contents = [message["content"] for message in sessions.read_session("last")]
    assert (contents[0], contents[2]) == ("[image]\nWhat is in the picture?", "And where?"), errors
    assert "error" not in errors


def test_run_with_an_image_needs_no_model(run, picture):
    scene, path = picture
    done = run("run", "--image", str(path), *NUMPY)
    assert (done.returncode, done.stdout) == (0, description(scene))
    assert "note:" not in done.stderr
    done = run("run", "--image", str(path), "-p", "A picture of", *NUMPY)
    assert done.stdout == f" {contents(scene)}."


def test_it_has_a_name(run):
    facts = json.loads(run("info", "pumice-demo-vision", "--json").stdout)
    assert (facts["name"], facts["license"]) == ("Pumice demo vision", "apache-2.0")
    assert sum(path.stat().st_size for path in MODEL.parent.iterdir()) <= 4_000_000


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


def test_pictures_are_trained_on_as_they_are_seen():
    encoder = Idefics3.__new__(Idefics3)
    encoder.image_size = encoder.longest = 96
    for scene in itertools.islice(scenes(9, 0), 6):
        image = draw(scene, Random(9))
        (seen,), _ = encoder.tiles(np.asarray(image))
        assert (np.asarray(fitted(image, 96)) == seen).all()


def test_addresses_are_no_images(run):
    done = run("run", "--image", "https://example.com/cat.png")
    assert done.returncode == 2
    assert "'https://example.com/cat.png' is no file: addresses are not fetched" in done.stderr
