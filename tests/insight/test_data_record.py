from __future__ import annotations

import json

import lightning as L
import pytest
import torch
from script_runs import CPU, as_if_alone, fit, on_images, write_images  # noqa: F401
from torch.utils.data import TensorDataset
from torchvision.transforms import v2

from datamodules import DatasetDataModule, ImageFolderDataModule
from datamodules.insight import DataRecord, describe_data, make_safe
from datamodules.insight.data_record import known_findings, shortened


def folder_of(path, **options):
    options = {"image_size": 8, "mode": "L", "flip": False, "val_split": 0.25, **options}
    return ImageFolderDataModule(str(path), num_workers=0, **options)


def test_the_record_holds_what_the_model_was_fed_with(tmp_path):
    dm = folder_of(write_images(tmp_path / "p"), batch_size=5, train_transform=v2.Resize((8, 8)))
    found = describe_data(dm)
    assert found["class"] == "datamodules.image_folder.ImageFolderDataModule"
    assert found["classes"] == {"dark": 0, "grey": 1, "light": 2}
    assert found["splits"] == {"train": 31, "val": 12, "test": 5}
    assert found["split_fingerprint"] == dm.split_fingerprint()
    assert found["transforms"]["train"].startswith("Resize(size=[8, 8]")
    assert found["loader"]["batch_size"] == 5
    assert found["arguments"]["root"] == str(tmp_path / "p")
    assert found["versions"]["torch"].startswith(torch.__version__.split("+")[0])
    assert "findings" not in found
    assert describe_data(dm, findings=["x"])["findings"] == ["x"]


def test_another_split_seed_gives_another_record_and_the_same_the_same(tmp_path):
    path = write_images(tmp_path / "p")
    first, again, other = (describe_data(folder_of(path, split_seed=s)) for s in (0, 0, 1))
    assert first == again
    assert first["split_fingerprint"] != other["split_fingerprint"]


def test_long_fitted_values_are_told_by_their_digest():
    assert shortened(torch.tensor([1.0, 2.0])) == [1.0, 2.0]
    one, other = shortened(torch.zeros(100)), shortened(torch.arange(100.0))
    assert one.startswith("tensor (100,) torch.float32, sha256 ")
    assert one != other
    assert shortened({"a": torch.zeros(2)}) == {"a": [0.0, 0.0]}


def test_a_plain_lightning_datamodule_is_recorded_by_class_and_arguments():
    class Plain(L.LightningDataModule):
        def __init__(self, size: int = 3):
            super().__init__()
            self.save_hyperparameters()

    found = describe_data(Plain(4))
    assert found["arguments"] == {"size": 4}
    assert set(found) == {"class", "arguments", "versions"}


def test_the_callback_writes_json_beside_the_run(tmp_path):
    dm = folder_of(write_images(tmp_path / "p"))

    class Run:
        datamodule, is_global_zero = dm, True

    DataRecord(tmp_path / "new" / "run").on_train_start(Run, None)
    found = json.loads((tmp_path / "new" / "run" / "data.json").read_text(encoding="utf-8"))
    assert found.pop("inspected")
    assert found == json.loads(json.dumps(describe_data(dm, findings=[])))


def test_fit_writes_the_record(tmp_path, capfd):
    options = on_images(write_images(tmp_path / "p"))
    assert fit.main([*options, "--max_epochs=1"]) == 0
    found = json.loads((tmp_path / "runs/image_folder-1/data.json").read_text(encoding="utf-8"))
    assert found["splits"] == {"train": 24, "val": 12, "test": 12}
    assert found["findings"] == []
    assert found["inspected"].startswith("settings, labels and data in memory")


def test_the_record_holds_what_a_look_without_samples_finds():
    data = TensorDataset(torch.zeros(90, 3), (torch.arange(90) < 3).long())
    dm = DatasetDataModule(data, val_split=0, test_split=0, train_transform=lambda x: 1 / 0)
    found = known_findings(dm)
    assert [f["code"] for f in found["findings"]] == ["imbalance", "not-picklable", "no-val"]
    assert found["findings"][0]["level"] == "warning"
    assert known_findings(L.LightningDataModule())["inspected"].startswith("not inspected")


def test_recording_leaves_a_running_fit_as_it_is(tmp_path):
    class Uneven(DatasetDataModule):
        pass

    dm = Uneven(TensorDataset(torch.zeros(30, 3), torch.arange(30) % 2), val_split=5)
    loader = dm.train_dataloader()
    guard, state = dm._guard, torch.get_rng_state()
    known_findings(dm)
    assert dm._position.loader is loader
    assert dm._guard is guard
    assert torch.equal(state, torch.get_rng_state())


# --- safe mode -----------------------------------------------------------------------------------


def test_safe_mode_sets_every_setting_and_says_how_to_go_back(tmp_path):
    dm = folder_of(
        write_images(tmp_path / "p"),
        batch_size=16,
        sampler="balanced",
        mixup=0.2,
        train_transform=v2.RandomErasing(1.0),
    )
    line = make_safe(dm)
    assert "batch_size=16" in line
    assert "sampler='balanced'" in line
    loader = dm.train_dataloader()
    assert (loader.num_workers, loader.pin_memory) == (0, False)
    first, second = list(loader), list(dm.train_dataloader())
    assert [len(b.target) for b in first] == [8, 8, 8, 7]
    assert first[0].target.dtype == torch.int64  # no MixUp
    rows = torch.stack([dm.train_dataset[i][0] for i in range(8)])
    assert torch.equal(first[0].inputs, dm.normalizer(rows))  # in order
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(first, second, strict=True))
    assert repr(dm.train_dataset.transform.transform) == repr(dm.val_dataset.transform.transform)
    plain = folder_of(tmp_path / "p", batch_size=16, train_transform=dm.eval_transform)
    expected = torch.stack([plain.train_dataset[i][0] for i in range(8)])
    assert torch.equal(rows, expected)  # and evaluation's pixels, not only its name


def test_safe_mode_takes_the_augmentation_of_a_users_dataset_away():
    data = TensorDataset(torch.zeros(40, 3), torch.arange(40) % 2)
    dm = DatasetDataModule(data, train_transform=lambda x: x + torch.randn(3))
    make_safe(dm)
    assert torch.equal(next(iter(dm.train_dataloader())).inputs, torch.zeros(8, 3))


def test_safe_mode_refuses_a_datamodule_of_another_base():
    with pytest.raises(ValueError, match="builds its loaders itself"):
        make_safe(L.LightningDataModule())


def test_fit_in_safe_mode_says_what_was_set_and_runs_100_samples(tmp_path, capfd):
    options = on_images(write_images(tmp_path / "p", each=80))
    assert fit.main([*options, "--max_epochs=1", "--safe"]) == 0
    out = capfd.readouterr().out
    assert "safe mode: no workers" in out
    found = json.loads((tmp_path / "runs/image_folder-1/data.json").read_text(encoding="utf-8"))
    assert (found["loader"]["batch_size"], found["sampler"]) == (8, "sequential")
    rows = (tmp_path / "runs/image_folder-1/metrics.csv").read_text().splitlines()
    steps = [r.split(",")[rows[0].split(",").index("step")] for r in rows[1:]]
    assert max(int(s) for s in steps) == 13  # steps trained, of 8 samples each
