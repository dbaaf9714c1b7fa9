from __future__ import annotations

import pytest
import torch

from datamodules.batches.batch import TextInputs
from models.text_nets import TextBag, TextTransformer, masked_mean

LENGTHS = [1, 3, 8, 50]


def padded(texts, side, dtype=torch.int64):
    width = max(map(len, texts))
    ids = torch.zeros(len(texts), width, dtype=torch.int64)
    mask = torch.zeros(len(texts), width, dtype=dtype)
    for row, text in enumerate(texts):
        place = slice(0, len(text)) if side == "right" else slice(width - len(text), width)
        ids[row, place] = text
        mask[row, place] = 1
    return TextInputs(ids, mask)


@pytest.fixture(params=["text_bag", "text_transformer", "three_grams"])
def net(request):
    torch.manual_seed(0)
    if request.param == "text_transformer":
        return TextTransformer(60, 4, depth=2).eval()
    return TextBag(60, 4, ngrams=3 if request.param == "three_grams" else 2).eval()


# ids may be the padding's own: the mask says what is a token
TEXTS = [torch.randint(0, 60, (n,), generator=torch.Generator().manual_seed(n)) for n in LENGTHS]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_a_row_has_the_same_output_in_any_batch(net, side, dtype):
    alone = torch.cat([net(*padded([text], side, dtype)) for text in TEXTS])
    together = net(*padded(TEXTS, side, dtype))
    reversed_rows = net(*padded(TEXTS[::-1], side, dtype)).flip(0)
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)
    torch.testing.assert_close(reversed_rows, alone, atol=1e-5, rtol=0)


def test_the_side_of_the_padding_does_not_matter(net):
    left, right = (net(*padded(TEXTS, side)) for side in ("left", "right"))
    torch.testing.assert_close(left, right, atol=1e-5, rtol=0)


def test_the_ids_under_the_padding_do_not_matter(net):
    ids, mask = padded(TEXTS, "right")
    other = torch.where(mask == 0, 7, ids)
    torch.testing.assert_close(net(other, mask), net(ids, mask), atol=1e-5, rtol=0)


@pytest.mark.parametrize("rows", [1, 6])
def test_empty_texts_have_finite_logits_and_gradients(net, rows):
    ids = torch.zeros(rows, 2, dtype=torch.int64)
    net.train()
    logits = net(ids, torch.zeros_like(ids))
    logits.square().sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())


def test_without_a_mask_the_padding_id_is_used():
    net = TextBag(60, 4, pad_id=5).eval()
    ids = torch.tensor([[1, 2, 5], [3, 5, 5]])
    torch.testing.assert_close(net(ids), net(ids, ids != 5))


def test_token_order_matters_with_ngrams_and_in_the_transformer():
    torch.manual_seed(0)
    ids, swapped = torch.tensor([[1, 2, 3]]), torch.tensor([[3, 2, 1]])
    for net in (TextBag(9, 2).eval(), TextTransformer(9, 2).eval()):
        assert not torch.allclose(net(ids), net(swapped), atol=1e-6)
    bag = TextBag(9, 2, ngrams=1).eval()
    torch.testing.assert_close(bag(ids), bag(swapped))


def test_hashes_are_in_the_table_for_any_id():
    net = TextBag(1_000_000, 2, dim=4, ngrams=3, buckets=7).eval()
    ids = torch.randint(900_000, 1_000_000, (4, 9))
    assert net(ids, torch.ones_like(ids)).isfinite().all()


def test_the_masked_mean_equals_one_by_hand():
    values = torch.tensor([[[1.0], [3.0], [9.0]], [[4.0], [5.0], [6.0]]])
    mask = torch.tensor([[True, True, False], [False, False, False]])
    assert masked_mean(values, mask).tolist() == [[2.0], [0.0]]


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match="dim=100 and heads=8; use for example dim=96"):
        TextTransformer(9, 2, dim=100, heads=8)
