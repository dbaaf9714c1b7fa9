from __future__ import annotations

import pytest
import torch

from datamodules.core.batch import Batch
from datamodules.core.finish import Finish
from datamodules.core.mix import Mix, MixedBatch, mixed


def batch(dtype=torch.float32):
    pixels = torch.arange(4)[:, None, None, None].expand(4, 3, 8, 8)
    return Batch((pixels * 50).to(dtype), torch.arange(4))


@pytest.mark.parametrize("alphas", [{"mixup": 0.4}, {"cutmix": 1.0}, {"mixup": 0.4, "cutmix": 1}])
@pytest.mark.parametrize("seed", range(8))
def test_targets_say_what_the_pictures_hold(alphas, seed):
    plain = batch()
    result = mixed(Mix(4, **alphas).drawn(plain, seed))
    assert isinstance(result, Batch)
    assert torch.allclose(result.target.sum(1), torch.ones(4))
    expected = result.target @ torch.arange(4.0) * 50
    assert torch.allclose(result.inputs.mean((1, 2, 3)), expected, atol=1e-3)
    assert torch.equal(plain.inputs, batch().inputs), "the batch itself is not written"


def test_the_same_seed_mixes_alike_and_another_otherwise():
    mix = Mix(4, mixup=0.4)
    first, again, other = (mixed(mix.drawn(batch(), seed)).target for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_crossing_as_uint8_ends_equal():
    finish, mix = Finish([0.5] * 3, [0.5] * 3), Mix(4, mixup=0.4)
    drawn = mix.drawn(batch(torch.uint8), 3)
    assert drawn.inputs.dtype == torch.uint8
    crossed = mixed(finish(MixedBatch(*drawn)))
    host = mixed(mix.drawn(Batch(finish(batch(torch.uint8).inputs), torch.arange(4)), 3))
    assert torch.equal(crossed.inputs, host.inputs)
    with pytest.raises(TypeError, match="finished float"):
        mixed(drawn)


def test_negative_alpha_is_refused():
    with pytest.raises(ValueError, match="mixup must be at least 0"):
        Mix(4, mixup=-1)
