"""The loop that numba compiles gives the bits of torch's normalization."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
import torch

import datamodules.batches.normalize as normalize_module
from datamodules.batches.kernels import load_kernel, normalize_image, normalize_kernel
from datamodules.batches.normalize import IMAGENET_MEAN, IMAGENET_STD, Normalizer


@pytest.fixture(params=["python", "numba"])
def kernel(request, monkeypatch):
    """The loop run by Python, and compiled if numba is installed."""
    loop = normalize_image
    if request.param == "numba":
        pytest.importorskip("numba", exc_type=ImportError)
        loop = load_kernel() or pytest.skip("numba is told not to compile")
    monkeypatch.setattr(normalize_module, "normalize_kernel", lambda: loop)
    return loop


@pytest.mark.parametrize("scale", ["divide", "multiply"])
@pytest.mark.parametrize("shape", [(3, 17, 11), (1, 8, 9), (3, 1, 1), (3, 0, 4)])
def test_normalized_images_equal_torch_to_the_bit(kernel, scale, shape, monkeypatch):
    draws = torch.Generator().manual_seed(0)
    batch = torch.randint(0, 256, (4, *shape), dtype=torch.uint8, generator=draws)
    batch[0] = torch.arange(shape[1] * shape[2]).view(shape[1:]) % 256
    normalizer = Normalizer(IMAGENET_MEAN[: shape[0]], IMAGENET_STD[: shape[0]], scale=scale)
    found = [normalizer(b) for b in (batch.to(memory_format=torch.channels_last), batch)]
    one = torch.empty(shape)
    normalizer.one(batch[1].permute(1, 2, 0).contiguous().permute(2, 0, 1), out=one)
    monkeypatch.setattr(normalize_module, "normalize_kernel", lambda: None)
    expected = normalizer(batch)
    assert all(torch.equal(f, expected) for f in found)
    assert torch.equal(one, expected[1])


@pytest.fixture
def fresh():
    load_kernel.cache_clear()
    yield
    load_kernel.cache_clear()


def test_without_numba_there_is_no_kernel(fresh, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert normalize_kernel() is None, "it was not loaded yet"
    assert load_kernel() is None
    assert normalize_kernel() is None


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("cannot cache function: no locator available"),
        OSError(28, "No space left on device"),
        EOFError("Ran out of input"),  # a cut file in the cache
    ],
)
def test_without_a_usable_cache_each_process_compiles(fresh, monkeypatch, error):
    def njit(signature, *, nogil, cache=False):
        def compiled(loop):
            if cache:
                raise error
            return loop

        return compiled

    config = types.SimpleNamespace(DISABLE_JIT=0)
    monkeypatch.setitem(sys.modules, "numba", types.SimpleNamespace(njit=njit, config=config))
    assert load_kernel() is normalize_image is normalize_kernel()
    load_kernel.cache_clear()
    config.DISABLE_JIT = 1
    assert load_kernel() is None, "as Python it would be slower than torch"


def test_a_compiler_that_fails_is_logged_and_torch_is_used(fresh, monkeypatch, caplog):
    def njit(signature, **options):
        raise OSError("no linker")

    config = types.SimpleNamespace(DISABLE_JIT=0)
    monkeypatch.setitem(sys.modules, "numba", types.SimpleNamespace(njit=njit, config=config))
    assert load_kernel() is None
    assert "no linker" in caplog.text


def test_all_256_levels_are_looked_up(kernel):
    table = np.arange(256, dtype=np.float32)[None]
    out = np.empty((1, 16, 16), np.float32)
    kernel(np.arange(256, dtype=np.uint8).reshape(16, 16, 1), table, out)
    assert out.ravel().tolist() == list(range(256))
