from __future__ import annotations

import pickle
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from made_images import blocks, chunk, encode, png
from PIL import Image, ImageFile

from datamodules.images.dataset import ImageDataset
from datamodules.images.decode import pillow_state
from datamodules.images.decode.decode import decode_image
from datamodules.images.decode.pillow_state import load_whole, quiet


def test_warnings_are_silent_inside_and_heard_outside():
    with quiet():
        warnings.warn("inside", UserWarning, stacklevel=1)
    with pytest.warns(UserWarning, match="outside"):
        warnings.warn("outside", UserWarning, stacklevel=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with quiet():
            warnings.warn("inside", UserWarning, stacklevel=1)
        with pytest.raises(UserWarning, match="an error"):
            warnings.warn("an error again", UserWarning, stacklevel=1)


def test_another_thread_still_warns():
    entered, spoken = threading.Event(), threading.Event()

    def decode_slowly() -> None:
        with quiet():
            entered.set()
            spoken.wait(10)

    thread = threading.Thread(target=decode_slowly)
    thread.start()
    entered.wait(10)
    with pytest.warns(UserWarning, match="heard"):
        warnings.warn("heard", UserWarning, stacklevel=1)
    spoken.set()
    thread.join()


def test_a_failure_inside_does_not_leave_silence_behind():
    with pytest.raises(RuntimeError), quiet():
        raise RuntimeError
    with pytest.warns(UserWarning, match="heard"):
        warnings.warn("heard", UserWarning, stacklevel=1)


def test_the_list_of_filters_is_the_same_afterwards():
    before = list(warnings.filters)
    decode_image(encode(blocks(), "PNG"))
    with pytest.raises(RuntimeError), quiet(), quiet():
        raise RuntimeError
    assert list(warnings.filters) == before


def test_the_filters_pickle_during_a_decode():
    """scikit-learn sends the list of filters to its worker processes."""
    with quiet():
        assert pickle.loads(pickle.dumps(warnings.filters))[0] == warnings.filters[0]


def test_replacing_the_filters_during_a_decode_is_harmless():
    with warnings.catch_warnings():
        inside = quiet()
        inside.__enter__()
    inside.__exit__(None, None, None)
    with pytest.warns(UserWarning, match="heard"):
        warnings.warn("heard", UserWarning, stacklevel=1)


def test_a_reader_that_warns_is_quiet():
    """An animation announced twice, which Pillow warns about and reads."""
    twice = chunk(b"acTL", bytes(8)) * 2
    assert decode_image(png(np.asarray(blocks()), colour=2, bits=8, before=twice)) == blocks()


def test_threads_decode_as_one_does(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    content = encode(blocks(), "PNG")
    with ThreadPoolExecutor(8) as pool:
        for image in pool.map(decode_image, [content] * 64):
            assert image == blocks()


def test_images_in_memory_have_nothing_to_load(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    image = Image.new("L", (2, 2), 5)
    load_whole(image)
    assert image.getpixel((1, 1)) == 5


def test_the_setting_is_answered_once_by_a_warning_and_left_as_it_is(monkeypatch):
    pillow_state._warn_of_truncated_images.cache_clear()
    ImageDataset([blocks()], None, None)  # without the setting there is no warning
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.warns(UserWarning, match="LOAD_TRUNCATED_IMAGES is True.*refused.*on_error"):
        ImageDataset([blocks()], None, None)
    ImageDataset([blocks()], None, None)
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True
    pillow_state._warn_of_truncated_images.cache_clear()
