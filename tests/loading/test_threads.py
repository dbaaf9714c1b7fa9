from __future__ import annotations

import gc
import threading
import time

import lightning as L
import pytest
import torch
from contract import same
from script_runs import write_images
from torchvision import transforms as v1
from torchvision.transforms import v2

from datamodules import ImageFolderDataModule
from datamodules.loading.threads import made_by_threads
from datamodules.seeding.thread_rng import active_stream, own_stream, thread_unsafe_step


def left():
    return [t.name for t in threading.enumerate() if t.name.startswith("data-worker")]


def double(x):
    return 2 * x


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 20])
def test_answers_come_in_order_and_no_thread_is_left(workers, count):
    def slow_at_first(x):
        time.sleep(0.02 if x == 0 else 0)
        return 2 * x

    before = torch.get_num_threads()
    assert list(made_by_threads(slow_at_first, range(count), workers)) == [
        2 * x for x in range(count)
    ]
    assert not left()
    assert torch.get_num_threads() == before


def test_an_error_comes_in_its_turn():
    def fails(x):
        if x == 2:
            raise ValueError("the third")
        return x

    made = made_by_threads(fails, range(9), 2)
    assert [next(made), next(made)] == [0, 1]
    with pytest.raises(ValueError, match="the third"):
        next(made)
    assert not left()


def test_a_consumer_that_stops_or_drops_the_iterator_ends_the_threads():
    made = made_by_threads(double, range(1000), 2)
    next(made)
    assert len(left()) == 2
    made.close()
    assert not left()
    made = made_by_threads(double, range(1000), 2)
    next(made)
    del made
    gc.collect()
    assert not left()


def test_a_stream_draws_as_the_default_generator_seeded_alike_and_leaves_it_alone():
    torch.manual_seed(7)
    expected = [torch.rand(3), torch.randn(2), torch.randint(9, (4,)), torch.empty(2).uniform_()]
    before = torch.get_rng_state()
    with own_stream() as stream:
        stream.generator.manual_seed(7)
        assert active_stream() is stream
        found = [torch.rand(3), torch.randn(2), torch.randint(9, (4,)), torch.empty(2).uniform_()]
    assert active_stream() is None
    assert same(found, expected)
    assert torch.equal(torch.get_rng_state(), before)


def grey(image):
    return image.convert("L")


class Cropped(v2.CenterCrop):
    pass


@pytest.mark.parametrize(
    ("transform", "step"),
    [
        (None, None),
        (v2.Compose([v2.RandomCrop(4), v2.RandomApply([v2.ColorJitter(0.2)])]), None),
        (v1.Compose([v1.RandomHorizontalFlip(), v1.ToTensor()]), None),
        (v2.RandomChoice([v2.RandomCrop(4)]), None),
        (v1.RandomChoice([v1.RandomCrop(4)]), "RandomChoice"),
        (v2.Compose([v2.RandomCrop(4), grey]), "grey"),
        (v2.Compose([v2.Lambda(grey)]), "Lambda"),
        (Cropped(3), "Cropped"),
    ],
)
def test_only_torchvisions_own_steps_are_known_to_draw_from_torch_alone(transform, step):
    found = thread_unsafe_step(transform)
    assert found is None if step is None else step in found


RANDOM = v2.Compose([v2.RandomCrop(6), v2.RandomHorizontalFlip(), v2.ColorJitter(0.4)])


def folder(tmp_path, **options):
    root = tmp_path / "images"
    if not root.exists():
        write_images(root)
    options = {"image_size": 8, "mode": "L", "batch_size": 7, "seed": 3, **options}
    return ImageFolderDataModule(root, train_transform=RANDOM, **options)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_threads_make_the_batches_of_processes(tmp_path, split):
    made = []
    for options in ({"num_workers": 0}, {"num_workers": 2, "worker_type": "thread"}):
        loader = getattr(folder(tmp_path, **options), f"{split}_dataloader")()
        before = torch.get_rng_state()
        epochs = []
        for epoch in range(2):
            loader.sampler.set_epoch(epoch)
            epochs.append(list(loader))
        assert torch.equal(torch.get_rng_state(), before)
        made.append(epochs)
    assert same(made[0], made[1])
    assert not left()


def test_a_transform_of_unknown_draws_is_refused_by_name(tmp_path):
    dm = folder(tmp_path, num_workers=2, worker_type="thread")
    dm.train_transform = v2.Compose([v2.RandomCrop(6), grey])
    with pytest.raises(
        ValueError, match=r"cannot be used for train: .*grey.* is not known to be thread-safe"
    ):
        dm.train_dataloader()
    with pytest.raises(ValueError, match="unknown worker_type 'threads'; did you mean 'thread'"):
        folder(tmp_path, worker_type="threads")


@pytest.mark.parametrize(
    ("options", "threads"),
    [
        ({}, 2),
        ({"worker_type": "process"}, 0),
        ({"eval_transform": grey}, 0),  # one kind for all splits
        ({"eval_transform": v2.Compose([v2.CenterCrop(8)])}, 2),
        ({"loader_options": {"prefetch_factor": 3, "pin_memory": False}}, 2),
        ({"loader_options": {"timeout": 60}}, 0),
        ({"loader_options": {"multiprocessing_context": "spawn"}}, 0),
        ({"loader_options": {"collate_fn": torch.utils.data.default_collate}}, 0),
    ],
    ids=str,
)
def test_threads_serve_by_themselves_where_they_can(tmp_path, options, threads):
    loader = folder(tmp_path, num_workers=2, **options).train_dataloader()
    assert loader.threads == threads
    assert loader.num_workers == 2 - threads
    assert folder(tmp_path, num_workers=0, **options).train_dataloader().threads == 0


def test_a_broken_image_is_named(tmp_path):
    dm = folder(tmp_path, num_workers=2, worker_type="thread", val_split=0, test_split=0)
    (tmp_path / "images" / "grey" / "03.png").write_bytes(b"no image")
    with pytest.raises(RuntimeError, match=r"03\.png"):
        list(dm.train_dataloader())
    assert not left()
    dm = folder(tmp_path, num_workers=2, worker_type="thread", val_split=0, on_error="skip")
    with pytest.warns(UserWarning, match=r"03\.png"):
        rows = sum(len(batch.target) for batch in [*dm.train_dataloader(), *dm.test_dataloader()])
    assert rows == 47


def test_a_fit_and_predictions_with_threads_are_those_without(tmp_path):
    class Recorder(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer, self.sums = torch.nn.Linear(1, 1), []

        def training_step(self, batch, index):
            self.sums.append(float(batch.inputs.sum()))
            return self.layer(batch.inputs.mean()[None, None]).mean()

        def validation_step(self, batch, index):
            assert batch.inputs.dtype == torch.float32

        def predict_step(self, batch, index):
            return batch.sum((1, 2, 3))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    found = []
    for options in ({"num_workers": 0}, {"num_workers": 2, "worker_type": "thread"}):
        dark = str(tmp_path / "images" / "dark")
        dm = folder(tmp_path, predict_path=dark, **options)
        model = Recorder()
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=2,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, dm)
        found.append((model.sums, torch.cat(trainer.predict(model, dm))))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])
    assert not left()
