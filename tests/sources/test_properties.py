"""What holds for each split, plan, batch, table and text: nothing lost, nothing twice, in order."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
import torch

pytest.importorskip("hypothesis", reason="comes with the extra 'test'")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datamodules.batches.collate import collate_pairs, pad, pad_pairs
from datamodules.sampling.by_class import Stratified
from datamodules.sampling.length_buckets import LengthBuckets
from datamodules.sampling.plan import EvaluationPlan
from datamodules.sampling.sharded_sampler import ShardedBatchSampler
from datamodules.sampling.strategies import Facts, Sequential, Shuffle, Views, Weighted
from datamodules.splits.groups import assign_groups
from datamodules.splits.split import apportion, split_indices
from datamodules.tables.table import read_table
from datamodules.texts.dataset import FlatRows, TextDataset
from datamodules.texts.reader import read_texts

# the same examples in each run, whatever the machine's speed and what earlier runs left behind
tries = settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
sizes = st.integers(0, 40)
shares = st.one_of(st.floats(0, 0.5), st.integers(0, 12))
labels = st.lists(st.integers(0, 4), min_size=1, max_size=40)
seeds = st.integers(-(2**63), 2**63 - 1)
plain = st.characters(exclude_categories=["Cs"])


def possible(n, val, test):
    counts = [round(n * s) if isinstance(s, float) else s for s in (val, test)]
    return sum(counts) <= n


@tries
@given(sizes, shares, shares, seeds)
def test_a_split_holds_each_sample_once_in_order_with_the_sizes_asked_for(n, val, test, seed):
    if not possible(n, val, test):
        with pytest.raises(ValueError, match="lower one of them"):
            split_indices(n, val=val, test=test, seed=seed)
        return
    parts = split_indices(n, val=val, test=test, seed=seed)
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(n))
    for name, share in (("val", val), ("test", test)):
        assert len(parts[name]) == (round(n * share) if isinstance(share, float) else share)
    for part in parts.values():
        assert part.dtype == np.int64
        assert (np.diff(part) > 0).all()


@pytest.mark.filterwarnings("ignore:.* train:UserWarning")  # small classes; other tests hold it
@tries
@given(labels, shares, shares, seeds)
def test_a_stratified_split_holds_each_once_and_keeps_every_class_in_train(y, val, test, seed):
    y, n = np.array(y), len(y)
    if not possible(n, val, test):
        return
    parts = split_indices(n, val=val, test=test, seed=seed, labels=y)
    again = split_indices(n, val=val, test=test, seed=seed, labels=y)
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(n))
    assert all(np.array_equal(parts[name], again[name]) for name in parts)
    asked = sum(round(n * s) if isinstance(s, float) else s for s in (val, test))
    assert asked == n or set(y[parts["train"]]) == set(y)


@tries
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), min_size=1), st.integers(0, 99))
def test_what_is_shared_out_fits_and_is_as_near_to_the_proportion_as_there_is_room(pairs, total):
    size = np.array([pair[0] for pair in pairs])
    room = np.minimum(size, [pair[1] for pair in pairs])
    n = int(size.sum())
    quota = apportion(size, min(total, n), n, room, np.linspace(0, 1, len(size), dtype=np.float32))
    assert ((quota >= 0) & (quota <= room)).all()
    assert quota.sum() == min(total, n, room.sum())
    if (room == size).all():
        assert (np.abs(quota - size * min(total, n) / n) < 1).all()


@tries
@given(st.lists(st.integers(0, 8), min_size=3, max_size=40), st.integers(1, 3), seeds)
def test_no_group_lies_on_two_sides(members, parts, seed):
    groups = np.unique(members, return_inverse=True)[1].astype(np.int64)
    n, generator = len(groups), torch.Generator().manual_seed(seed)
    wanted = [n - n // 3 * (parts - 1)] + [n // 3] * (parts - 1)
    if groups.max() + 1 < parts:
        with pytest.raises(ValueError, match="groups are too few"):
            assign_groups(groups, wanted, generator)
        return
    part = assign_groups(groups, wanted, generator)
    assert part.shape == (n,)
    assert set(part.tolist()) == set(range(parts)), "no part is empty"
    assert all(len(set(part[groups == group].tolist())) == 1 for group in set(groups.tolist()))


def ranks(plan, n, world, *, epoch=0, **options):
    """Batches of all ranks, rank after rank, as lists of (index, seed)."""
    shared = []
    for rank in range(world):
        sampler = ShardedBatchSampler(plan, n, num_replicas=world, rank=rank, seed=0, **options)
        sampler.set_epoch(epoch)
        batches = [list(zip(k.indices.tolist(), k.seeds.tolist(), strict=True)) for k in sampler]
        assert len(batches) <= len(sampler)
        sampler.start(1)
        rest = [list(zip(k.indices.tolist(), k.seeds.tolist(), strict=True)) for k in sampler]
        assert rest == batches[1:], "a resumed epoch goes on with the same samples and seeds"
        shared.append(batches)
    return shared


@st.composite
def epochs(draw):
    """A train split, its batch size and a world."""
    y = draw(labels)
    lengths = draw(st.lists(st.integers(1, 50), min_size=len(y), max_size=len(y)))
    facts = Facts(
        len(y),
        draw(st.integers(1, 9)),
        draw(st.booleans()),
        np.array(y, np.int64),
        np.array(lengths, np.int64),
    )
    return facts, draw(st.integers(1, 4)), draw(st.integers(0, 5))


@pytest.mark.parametrize(
    "kind", [Shuffle(), Sequential(), Stratified()], ids=lambda k: type(k).__name__
)
@tries
@given(epochs())
def test_an_epoch_meets_every_sample_and_all_ranks_take_the_same_steps(kind, epoch):
    facts, world, number = epoch
    plan = kind.plan(facts)
    shared = ranks(plan, facts.n, world, epoch=number)
    assert len({len(batches) for batches in shared}) == 1
    assert {len(batches) for batches in shared} == {len(b) for b in ranks(plan, facts.n, world)}
    met = [index for batches in shared for batch in batches for index, _ in batch]
    pairs = [pair for batches in shared for batch in batches for pair in batch]
    if facts.drop_last:
        assert len(met) == len(set(met)) == facts.n - facts.n % (facts.batch_size * world)
    else:
        assert set(met) == set(range(facts.n))
        assert len(met) - facts.n < 2 * world
    # a sample that comes again draws anew, on whichever rank
    assert len({seed for _, seed in pairs}) == len(pairs)
    limit = 3 if (facts.batch_size, world) == (2, 1) else facts.batch_size
    assert all(1 <= len(batch) <= limit for batches in shared for batch in batches)


@tries
@given(sizes, st.integers(1, 9), st.integers(1, 5))
def test_evaluation_meets_each_sample_once_in_order_on_any_number_of_ranks(n, batch_size, world):
    shared = ranks(EvaluationPlan(n, batch_size), n, world, uneven="keep")
    by_step = [
        index
        for step in range(max((len(batches) for batches in shared), default=0))
        for batches in shared
        for index, _ in (batches[step] if step < len(batches) else [])
    ]
    assert by_step == list(range(n)), "gathered step by step, rank by rank, the rows are in order"
    assert all(len(batch) <= batch_size for batches in shared for batch in batches)


@tries
@given(epochs(), st.integers(50, 200), st.integers(1, 5))
def test_length_buckets_meet_every_sample_within_the_budget(epoch, budget, buckets):
    facts, world, number = epoch
    plan = LengthBuckets(budget, buckets=buckets).plan(facts._replace(drop_last=False))
    shared = ranks(plan, facts.n, world, epoch=number)
    assert len({len(batches) for batches in shared}) == 1
    assert {len(batches) for batches in shared} == {len(b) for b in ranks(plan, facts.n, world)}
    met = {index for batches in shared for batch in batches for index, _ in batch}
    assert met == set(range(facts.n))
    for batch in (batch for batches in shared for batch in batches):
        longest = max(int(facts.lengths[index]) for index, _ in batch)
        assert len(batch) * longest <= budget


@tries
@given(epochs(), st.integers(2, 3))
def test_views_stand_together_and_draw_differently(epoch, views):
    facts, world, number = epoch
    facts = facts._replace(batch_size=facts.batch_size * views)
    for batches in ranks(Views(views).plan(facts), facts.n, world, epoch=number):
        for batch in batches:
            for at in range(0, len(batch), views):
                together = batch[at : at + views]
                assert len({index for index, _ in together}) == 1
                assert len({seed for _, seed in together}) == len(together) == views


@tries
@given(epochs(), st.data())
def test_weights_without_replacement_leave_out_only_what_weighs_nothing(epoch, data):
    facts, world, number = epoch
    weights = data.draw(
        st.lists(st.sampled_from([0.0, 1.0, 3.5]), min_size=facts.n, max_size=facts.n).filter(any)
    )
    count = sum(weight > 0 for weight in weights)
    kind = Weighted(weights, replacement=False, num_samples=count)
    shared = ranks(kind.plan(facts._replace(drop_last=False)), facts.n, world, epoch=number)
    met = [index for batches in shared for batch in batches for index, _ in batch]
    assert set(met) == {index for index, weight in enumerate(weights) if weight > 0}
    assert len(met) - count < 2 * world


tensors = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=6)


@tries
@given(tensors, st.floats(-9, 9, width=32))
def test_padding_gives_every_value_back_under_its_mask(shapes, value):
    made = [torch.arange(a * b, dtype=torch.float32).reshape(a, b) + 1 for a, b in shapes]
    padded = pad(made, value=value)
    assert padded.values.shape == (len(made), *(max(size) for size in zip(*shapes, strict=True)))
    assert padded.mask.dtype == torch.bool
    for row, mask, tensor in zip(padded.values, padded.mask, made, strict=True):
        assert torch.equal(row[mask], tensor.flatten())
        assert (row[~mask] == value).all()
    batch = pad_pairs([(tensor, place) for place, tensor in enumerate(made)], value=value)
    assert torch.equal(batch.inputs.values, padded.values)
    assert batch.target.tolist() == list(range(len(made)))


@tries
@given(
    st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=8),
    st.sampled_from([torch.uint8, torch.int32, torch.float16, torch.float32, torch.float64]),
)
def test_a_batch_stacks_in_order_and_targets_are_int64(targets, dtype):
    samples = [
        (torch.full((2,), place, dtype=dtype), target) for place, target in enumerate(targets)
    ]
    batch = collate_pairs(samples)
    assert batch.inputs[:, 0].tolist() == list(range(len(targets)))
    assert batch.inputs.dtype == (torch.float32 if dtype == torch.float64 else dtype)
    assert batch.target.tolist() == targets
    assert batch.target.dtype == torch.int64


@tries
@given(
    st.lists(st.lists(st.integers(0, 2**16 - 1), max_size=6), min_size=1, max_size=8),
    st.sampled_from(["left", "right"]),
    st.data(),
)
def test_a_text_batch_holds_the_rows_asked_for_in_their_order(rows, side, data):
    flat = FlatRows.from_lengths(
        np.array([token for row in rows for token in row], np.uint16), map(len, rows)
    )
    target = np.arange(len(rows)) * 3
    dataset = TextDataset(
        flat, np.arange(len(rows)), target, pad_id=7, padding_side=side, describe=str
    )
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=9))
    batch = dataset.get_batch(np.array(chosen))
    ids, mask = batch.inputs
    assert ids.dtype == mask.dtype == torch.int64
    assert ids.shape[1] == max(len(rows[index]) for index in chosen)
    assert [i[m == 1].tolist() for i, m in zip(ids, mask, strict=True)] == [rows[i] for i in chosen]
    assert (ids[mask == 0] == 7).all()
    assert batch.target.tolist() == [3 * index for index in chosen]
    first = 0 if side == "right" else -1
    assert all(mask[row, first] for row, index in enumerate(chosen) if rows[index])


def written(header, rows, separator):
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, delimiter=separator)
    writer.writerow(header)
    writer.writerows(rows)
    return stream.getvalue().encode()


words = st.text(st.sampled_from("ab é,;|\t\"\n'žΩ"), max_size=5).map(lambda text: f"t{text}t")
cells = st.tuples(
    st.one_of(st.none(), words),
    st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
    st.integers(-(10**14), 10**14),
)


@tries
@given(st.lists(cells, min_size=2, max_size=9), st.sampled_from(",;\t|"))
def test_a_table_keeps_each_cell_in_its_row(tmp_path, rows, separator):
    path = tmp_path / "made.csv"
    numbered = [(f"r{place}", *row) for place, row in enumerate(rows)]
    path.write_bytes(written(["key", "word", "number", "whole"], numbered, separator))
    table = read_table(path, separator=separator)
    assert len(table) == len(rows)
    key = table.column("key")
    assert [key.words[code] for code in key.codes] == [f"r{place}" for place in range(len(rows))]
    for name, place in (("word", 0), ("number", 1), ("whole", 2)):
        column = table.column(name)
        assert column.missing.tolist() == [row[place] is None for row in rows]
        for row in np.flatnonzero(~column.missing):
            if name == "word":
                assert column.words[column.codes[row]] == rows[row][place]
            else:
                assert column.numbers[row] == rows[row][place]


texts = st.lists(
    st.tuples(st.sampled_from("abc"), st.text(plain, max_size=8)), min_size=1, max_size=8
)


@tries
@given(texts, st.sampled_from([".csv", ".tsv", ".jsonl", ".json"]))
def test_a_file_of_texts_keeps_each_text_and_label_in_its_row(tmp_path, rows, ending):
    path = tmp_path / f"made{ending}"
    rows = [(label, f"t{text}") for label, text in rows]  # one that is no number
    if ending in (".csv", ".tsv"):
        separator = "," if ending == ".csv" else "\t"
        path.write_bytes(written(["label", "text"], rows, separator))
    else:
        objects = [json.dumps({"text": text, "label": label}) for label, text in rows]
        whole = "[" + ",".join(objects) + "]" if ending == ".json" else "\n".join(objects)
        path.write_text(whole, encoding="utf-8")
    found = read_texts(path)
    assert found.texts.texts(0, len(rows)) == [text for _, text in rows]
    assert [found.names[code] for code in found.labels] == [label for label, _ in rows]
    assert found.labels.dtype == np.int64
    assert found.keys == list(range(len(rows)))
