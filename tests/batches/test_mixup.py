from __future__ import annotations

import pytest
import torch

from datamodules import samples
from datamodules.batches.batch import Batch
from datamodules.batches.mixup import Mix, MixedBatch, mixed
from datamodules.batches.normalize import Normalizer


def batch(dtype=torch.float32):
    pixels = torch.arange(4)[:, None, None, None].expand(4, 3, 8, 8)
    return Batch((pixels * 50).to(dtype), torch.arange(4))


@pytest.mark.parametrize("alphas", [{"mixup": 0.4}, {"cutmix": 1.0}, {"mixup": 0.4, "cutmix": 1}])
@pytest.mark.parametrize("seed", range(8))
def test_targets_have_the_shares_of_the_mixed_images(alphas, seed):
    plain = batch()
    result = mixed(Mix(4, **alphas).drawn(plain, seed))
    assert isinstance(result, Batch)
    assert torch.allclose(result.target.sum(1), torch.ones(4))
    expected = result.target @ torch.arange(4.0) * 50
    assert torch.allclose(result.inputs.mean((1, 2, 3)), expected, atol=1e-3)
    assert torch.equal(plain.inputs, batch().inputs), "the batch itself is not written"


def test_equal_seeds_mix_equally():
    mix = Mix(4, mixup=0.4)
    first, again, other = (mixed(mix.drawn(batch(), seed)).target for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_mixing_after_a_transfer_as_uint8_gives_equal_images():
    normalizer, mix = Normalizer([0.5] * 3, [0.5] * 3), Mix(4, mixup=0.4)
    drawn = mix.drawn(batch(torch.uint8), 3)
    assert drawn.inputs.dtype == torch.uint8
    crossed = mixed(normalizer(MixedBatch(*drawn)))
    host = mixed(mix.drawn(Batch(normalizer(batch(torch.uint8).inputs), torch.arange(4)), 3))
    assert torch.equal(crossed.inputs, host.inputs)
    with pytest.raises(TypeError, match="normalized float"):
        mixed(drawn)


def test_negative_alpha_is_refused():
    with pytest.raises(ValueError, match="mixup must be a finite number"):
        Mix(4, mixup=-1)
    with pytest.raises(ValueError, match="got nan"):
        Mix(4, mixup=float("nan"))


def test_only_train_is_mixed_and_repeats_with_the_seed(tmp_path, monkeypatch):
    monkeypatch.setenv("DATAMODULES_CACHE", str(tmp_path))
    dm = samples.digits(mixup=0.2, cutmix=1.0, num_workers=0)
    first, again = (next(iter(dm.train_dataloader())) for _ in range(2))
    assert first.target.shape == (64, 10)
    assert first.target.dtype == first.inputs.dtype == torch.float32
    assert torch.equal(first.inputs, again.inputs)
    assert dm.preview("val").target.dtype == torch.int64
    with pytest.raises(ValueError, match="cutmix must be a finite number"):
        samples.digits(cutmix=-1)
