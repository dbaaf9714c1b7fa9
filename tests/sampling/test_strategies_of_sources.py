"""Every sampling strategy with every source, by name and by class."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from datamodules import (
    DatasetDataModule,
    ImageFolderDataModule,
    LengthBuckets,
    PByK,
    TabularDataModule,
    TextDataModule,
    samples,
)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DATAMODULES_CACHE", str(tmp_path_factory.getbasetemp() / "sampling"))


@pytest.fixture
def sources(tmp_path):
    """``make(**options)`` of each source, with three classes of unequal size."""
    labels = ["a"] * 30 + ["b"] * 12 + ["c"] * 6
    table = tmp_path / "table.csv"
    table.write_text("x,y\n" + "".join(f"{i}.5,{c}\n" for i, c in enumerate(labels)))
    texts = tmp_path / "texts.tsv"
    rows = (f"{'word ' * (i % 7 + 1)}{c}\t{c}\n" for i, c in enumerate(labels))
    texts.write_text("text\tlabel\n" + "".join(rows))
    pairs = [(torch.tensor([float(i)]), c) for i, c in enumerate(labels)]
    root = samples.digits().hparams["root"]
    return {
        "table": lambda **o: TabularDataModule(table, "y", **o),
        "text": lambda **o: TextDataModule(texts, vocab_size=300, **o),
        "dataset": lambda **o: DatasetDataModule(pairs, **o),
        "folder": lambda **o: ImageFolderDataModule(root, mode="L", image_size=8, **o),
    }


@pytest.mark.parametrize("source", ["table", "text", "dataset", "folder"])
@pytest.mark.parametrize("sampler", ["balanced", "stratified", "pairs", "views", PByK(2, 2)])
def test_each_strategy_with_each_source(sources, source, sampler):
    dm = sources[source](batch_size=8, num_workers=0, sampler=sampler)
    loader = dm.train_dataloader()
    batches = list(loader)
    assert len(batches) == len(loader)
    target = torch.cat([b.target for b in batches])
    if sampler == "balanced":
        share = np.bincount(target.numpy(), minlength=dm.num_classes) / len(target)
        assert share.max() < 2.5 / dm.num_classes
    if sampler == "pairs":
        assert all((b.target[::2] == b.target[1::2]).sum() == 2 for b in batches)
    if isinstance(sampler, PByK):
        assert all((b.target[::2] == b.target[1::2]).all() for b in batches)
    evaluated = torch.cat([b.target for b in dm.val_dataloader()])
    assert len(evaluated) == len(dm.val_dataset), "evaluation is never resampled"


def test_length_buckets_have_at_most_max_tokens(sources):
    dm = sources["text"](sampler=LengthBuckets(24, buckets=4, multiple=1))
    loader = dm.train_dataloader()
    sizes = [b.inputs.input_ids.shape for b in loader]
    assert len(sizes) == len(loader)
    assert max(n * length for n, length in sizes) <= 24
    with pytest.raises(ValueError, match="need lengths"):
        sources["table"](sampler="length_buckets").train_dataloader()


@pytest.mark.parametrize("buckets", [1, 4])
def test_padding_to_the_bound_gives_few_lengths(sources, buckets):
    longest = sources["text"](sampler=LengthBuckets(48, buckets=buckets, multiple=1), seed=0)
    bound = sources["text"](
        sampler=LengthBuckets(48, buckets=buckets, multiple=1, pad_to="bound"), seed=0
    )
    loaders, lengths = [dm.train_dataloader() for dm in (longest, bound)], set()
    for epoch in range(2):
        for loader in loaders:
            loader.sampler.set_epoch(epoch)
        for one, other in zip(*loaders, strict=True):
            (mask, ids), (more, wide) = (
                (b.inputs.attention_mask, b.inputs.input_ids) for b in (one, other)
            )
            assert torch.equal(mask.sum(1), more.sum(1))
            assert torch.equal(ids[mask > 0], wide[more > 0])
            assert wide.numel() <= 48
            lengths.add(wide.shape[1])
    assert len(lengths) <= buckets
    assert max(lengths) == bound.lengths("train").max()
    assert bound.train_dataset[0][0].input_ids.shape == (bound.lengths("train")[0],)
    ends = [b.inputs.attention_mask.sum(1).max() for b in bound.val_dataloader()]
    assert ends == [b.inputs.input_ids.shape[1] for b in bound.val_dataloader()]


def test_padding_to_the_bound_is_refused_without_padding(sources):
    with pytest.raises(ValueError, match='leave pad_to="bound" out'):
        sources["table"](sampler=LengthBuckets(pad_to="bound")).train_dataloader()
    with pytest.raises(ValueError, match="unknown pad_to 'bounds'; did you mean 'bound'"):
        LengthBuckets(pad_to="bounds")


def test_global_batch_size_does_not_depend_on_the_ranks(sources):
    dm = sources["table"](global_batch_size=16, seed=0)
    loader = dm.train_dataloader()
    one = [sorted(keys.indices.tolist()) for keys in loader.sampler]
    shares = []
    for rank in (0, 1):
        loader.sampler._world = (2, rank)
        shares.append([keys.indices.tolist() for keys in loader.sampler])
    assert [sorted({*a, *b}) for a, b in zip(*shares, strict=True)] == one
    assert all(len(batch) <= 8 for share in shares for batch in share)


def test_balanced_sampling_of_a_regression_is_refused():
    with pytest.raises(ValueError, match="one class per sample"):
        samples.diabetes(sampler="balanced").train_dataloader()
