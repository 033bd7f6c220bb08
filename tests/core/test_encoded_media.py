"""Images that are encoded at once, kept, and found again."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

import pumice
from pumice.chat.mixed import AHEAD, encode_media
from pumice.errors import MediaError
from pumice.frontend.encoded_media import EncodedMedia
from waiting import PATIENCE, wait_until


def image(value, n=4):
    pixels = np.full((1, n, 3), value, np.uint8)
    return SimpleNamespace(content=lambda: pixels)


@pytest.fixture
def encoder():
    """Encodes once it is let; ``running``: values of the images that it encodes."""
    encoder = SimpleNamespace(running=[], done=[], let=threading.Event())

    def encode(pixels):
        encoder.running.append(int(pixels[0, 0, 0]))
        assert encoder.let.wait(PATIENCE)
        encoder.done.append(encoder.running[-1])
        return [f"image {pixels[0, 0, 0]}"]

    encoder.encode = encode
    yield encoder
    encoder.let.set()


def get(media, encoder, one, salt=""):
    return media.get(one, lambda content: content, encoder.encode, salt)


def test_small_images_are_encoded_at_once_and_equal_ones_once(encoder):
    media = EncodedMedia()
    with ThreadPoolExecutor(8) as pool:
        first = [pool.submit(get, media, encoder, image(value)) for value in (1, 2, 3)]
        wait_until(lambda: len(encoder.running) == 3)
        again = [pool.submit(get, media, encoder, image(value)) for value in (1, 2)]
        encoder.let.set()
        assert [one.result() for one in (*first, *again)] == [[f"image {i}"] for i in (1, 2, 3, 1, 2)]
    assert sorted(encoder.running) == [1, 2, 3]
    get(media, encoder, image(1), "salt")
    assert sorted(encoder.running) == [1, 1, 2, 3]
    assert media._coming == {}


def test_images_of_a_prompt_are_encoded_a_few_at_once_and_in_order(encoder):
    images = [pumice.Image(np.full((1, 4, 3), i, np.uint8)) for i in range(AHEAD + 2)]
    found = []

    def run():
        parts = ["a", images[0], *images[1:], "b"]
        found.extend(encode_media(parts, lambda part: encoder.encode(part.pixels())))

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: len(encoder.running) == AHEAD)
    encoder.let.set()
    thread.join(PATIENCE)
    assert found == ["a", *(f"image {i}" for i in range(len(images))), "b"]


def test_the_error_of_one_of_several_images_has_its_number_and_ends_the_others():
    encoded = []

    def encode(part):
        value = int(part.pixels()[0, 0, 0])
        encoded.append(value)
        if value == 1:
            raise MediaError("image", "too thin")
        return [str(value)]

    images = [pumice.Image(np.full((1, 4, 3), i, np.uint8)) for i in range(20)]
    with pytest.raises(MediaError, match="image 2 of 20: too thin"):
        list(encode_media(images, encode))
    assert len(encoded) <= AHEAD + 1
