"""The loops that numba compiles give the bits of the torch calls that they stand for."""

from __future__ import annotations

import random
import sys
import types

import numpy as np
import pytest
import torch
from contract import same
from script_runs import write_images
from torchvision import transforms as v1
from torchvision.transforms import v2

import datamodules.batches.normalize as normalize_module
import datamodules.images.fast.crop_params as crop_draws
from datamodules import ImageFolderDataModule
from datamodules.batches import kernels as kernels_room
from datamodules.batches.kernels import Kernels, draw_crop, load_kernels, normalize_image
from datamodules.batches.normalize import IMAGENET_MEAN, IMAGENET_STD, Normalizer
from datamodules.images.fast.crop_head import crop_first
from tests.images.test_crop_params import STEPS

PLAIN = Kernels(normalize_image, draw_crop)


@pytest.fixture(params=["plain", "numba"])
def loops(request, monkeypatch):
    """The loops as Python runs them, and compiled where numba is installed."""
    found = PLAIN
    if request.param == "numba":
        pytest.importorskip("numba", exc_type=ImportError)
        found = load_kernels() or pytest.skip("numba is told not to compile")
    for room in (crop_draws, normalize_module):
        monkeypatch.setattr(room, "kernels", lambda: found)
    return found


@pytest.mark.parametrize("scale", ["divide", "multiply"])
@pytest.mark.parametrize("shape", [(3, 17, 11), (1, 8, 9), (3, 1, 1), (3, 0, 4)])
def test_images_are_finished_to_the_same_bits(loops, scale, shape, monkeypatch):
    draws = torch.Generator().manual_seed(0)
    batch = torch.randint(0, 256, (4, *shape), dtype=torch.uint8, generator=draws)
    batch[0] = torch.arange(shape[1] * shape[2]).view(shape[1:]) % 256
    normalizer = Normalizer(IMAGENET_MEAN[: shape[0]], IMAGENET_STD[: shape[0]], scale=scale)
    found = [normalizer(b) for b in (batch.to(memory_format=torch.channels_last), batch)]
    one = torch.empty(shape)
    normalizer.one(batch[1].permute(1, 2, 0).contiguous().permute(2, 0, 1), out=one)
    monkeypatch.setattr(normalize_module, "kernels", lambda: None)
    expected = normalizer(batch)
    assert all(torch.equal(f, expected) for f in found)
    assert torch.equal(one, expected[1])


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("shape", [(375, 500), (31, 8), (1, 1), (1, 300), (3000, 4000)])
def test_crops_and_flips_are_torchs(loops, step, shape):
    steps = [step, v1.RandomHorizontalFlip(), v2.RandomVerticalFlip(0.3)]
    head = crop_first(steps).head
    answered = 0
    for seed in [*range(20), 2**32 - 1]:
        torch.manual_seed(seed)
        expected = head.draw(*shape)
        answered += head.seeded.draw(*shape, seed) is not None
        assert head.draw(*shape, seed) == expected
    if step.scale[1] <= 1 and shape == (375, 500) and 1.0 not in step.scale[:1]:
        assert answered > 15 or step.ratio[1] < 0.5, "torch is asked seldom"


def test_a_schedule_may_change_the_steps(loops):
    steps = [v2.RandomResizedCrop(9), v2.RandomHorizontalFlip(0.0)]
    head = crop_first(steps).head
    for scale, ratio, p in [((0.1, 0.2), (1, 2), 0.0), ([0.3, 0.4], (1, 1), 1.0)]:
        steps[0].scale, steps[0].ratio, steps[1].p = scale, ratio, p
        torch.manual_seed(3)
        expected = head.draw(375, 500)
        assert head.seeded.draw(375, 500, 3) == (expected.box, [p])
        assert head.draw(375, 500, 3) == expected


def test_sides_that_a_rounding_decides_are_left_to_torch(loops):
    head = crop_first([v2.RandomResizedCrop(9, scale=(0.25, 0.25), ratio=(1, 1))]).head
    assert head.seeded.draw(9, 1, 0) is None, "a side of 1.5 exactly"
    assert head.seeded.draw(10, 10, 0) is not None


def test_a_seeded_sample_leaves_the_generators_to_those_who_need_them(loops):
    head = crop_first([v2.RandomResizedCrop(9)]).head
    torch.manual_seed(1)
    before = torch.get_rng_state()
    head.draw(375, 500, 7)
    assert torch.equal(torch.get_rng_state(), before)
    never = crop_first([v2.RandomResizedCrop(9, scale=(1, 1), ratio=(9, 12))]).head
    torch.manual_seed(7)
    expected = never.draw(375, 500), torch.get_rng_state()
    torch.manual_seed(1)
    found = never.draw(375, 500, 7), torch.get_rng_state()
    assert found[0] == expected[0]
    assert torch.equal(found[1], expected[1])


def test_a_torchvision_that_draws_otherwise_is_asked_itself(loops, monkeypatch):
    monkeypatch.setattr(crop_draws, "_agrees", lambda kind: False)
    head = crop_first([v2.RandomResizedCrop(9)]).head
    assert head.seeded.draw(375, 500, 0) is None
    assert not head.draws_alone


@pytest.fixture
def fresh():
    load_kernels.cache_clear()
    yield
    load_kernels.cache_clear()


def test_a_torch_that_draws_otherwise_is_asked_itself(loops, monkeypatch):
    def other(*given):
        answer = loops.draw_crop(*given)
        given[-1][0] += 1
        return answer

    odd = Kernels(loops.normalize_image, other)
    monkeypatch.setattr(crop_draws, "kernels", lambda: odd)
    assert crop_first([v2.RandomResizedCrop(9)]).head.seeded.draw(375, 500, 0) is None


def test_without_numba_there_are_no_loops(fresh, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert kernels_room.kernels() is None, "not asked for yet"
    assert load_kernels() is None
    assert kernels_room.kernels() is None


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("cannot cache function: no locator available"),
        OSError(28, "No space left on device"),
        EOFError("Ran out of input"),  # a cut file in the cache
    ],
)
def test_where_nothing_can_be_kept_each_process_compiles(fresh, monkeypatch, error):
    def njit(signature, *, nogil, cache=False):
        def compiled(loop):
            if cache:
                raise error
            return loop

        return compiled

    config = types.SimpleNamespace(DISABLE_JIT=0)
    monkeypatch.setitem(sys.modules, "numba", types.SimpleNamespace(njit=njit, config=config))
    assert load_kernels() == PLAIN == kernels_room.kernels()
    load_kernels.cache_clear()
    config.DISABLE_JIT = 1
    assert load_kernels() is None, "as Python it would be slower than torch"


def test_a_compiler_that_fails_is_no_matter(fresh, monkeypatch, caplog):
    def njit(signature, **options):
        raise OSError("no linker")

    config = types.SimpleNamespace(DISABLE_JIT=0)
    monkeypatch.setitem(sys.modules, "numba", types.SimpleNamespace(njit=njit, config=config))
    assert load_kernels() is None
    assert "no linker" in caplog.text


def test_no_level_is_out_of_the_tables_reach(loops):
    table = np.arange(256, dtype=np.float32)[None]
    out = np.empty((1, 16, 16), np.float32)
    loops.normalize_image(np.arange(256, dtype=np.uint8).reshape(16, 16, 1), table, out)
    assert out.ravel().tolist() == list(range(256))


def drawing(samples):
    """A collate that draws, as MixUp in it does."""
    return torch.rand(3), random.random(), float(np.random.rand())


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_collate_that_draws_has_its_samples_stream(loops, workers, tmp_path):
    root = write_images(tmp_path, each=6)
    options = {"batch_size": 3, "seed": 1, "num_workers": workers, "image_size": 72}
    options |= {"val_split": 0, "test_split": 0, "loader_options": {"collate_fn": drawing}}
    found = []
    for fast in (True, False):
        dm = ImageFolderDataModule(root, image_options={"fast_transforms": fast}, **options)
        torch.manual_seed(len(found))
        found.append(list(dm.train_dataloader()))
    assert same(*found)
    assert len({float(rand[0]) for rand, *_ in found[0]}) == len(found[0])


def test_a_schedule_in_mid_epoch_leaves_the_consumers_draws_alone(loops, tmp_path):
    root = write_images(tmp_path, each=8)
    steps = [v2.RandomResizedCrop(72), v2.RandomHorizontalFlip()]
    dm = ImageFolderDataModule(
        root, batch_size=2, train_transform=v2.Compose(steps), num_workers=2, worker_type="thread"
    )
    torch.manual_seed(0)
    expected = torch.rand(6)
    torch.manual_seed(0)
    drawn = []
    for number, _ in zip(range(6), dm.train_dataloader(), strict=False):
        steps[0].scale = (0.05 + number / 100, 1.0)
        drawn.append(torch.rand(1))
    assert torch.equal(torch.cat(drawn), expected)
