from __future__ import annotations

import inspect
import typing

import pytest
from torch import nn
from torchvision.transforms import v2

import datamodules
from datamodules import (
    CIFAR10DataModule,
    DataModule,
    DatasetDataModule,
    FeaturesDataModule,
    ImageFolderDataModule,
    TabularDataModule,
    TextDataModule,
)
from datamodules.core.options import RENAMED, DataModuleOptions
from datamodules.images.options import ImageOptions, with_defaults

SOURCES = [
    getattr(datamodules, name)
    for name in datamodules.__all__
    if name.endswith("DataModule") and name != "DataModule"
]
PAIRS = [(0.0, 0), (1.0, 1)] * 10


def documented(typed_dict):
    """Names in the Args section of a docstring."""
    lines = inspect.getdoc(typed_dict).split("Args:\n")[1].split("\n\n")[0].splitlines()
    return [line.split(":")[0].strip() for line in lines if line[:4] == "    " and line[4] != " "]


def test_typed_options_are_the_arguments_of_the_base():
    arguments = inspect.signature(DataModule).parameters
    assert list(DataModuleOptions.__annotations__) == list(arguments)
    hints, typed = (
        typing.get_type_hints(DataModule.__init__),
        typing.get_type_hints(DataModuleOptions),
    )
    assert {name: hints[name] for name in arguments} == typed
    assert documented(DataModuleOptions) == list(arguments)


def test_typed_image_options_are_documented_and_have_defaults():
    assert documented(ImageOptions) == list(ImageOptions.__annotations__)
    assert list(with_defaults(None)) == list(ImageOptions.__annotations__)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.__name__)
def test_every_source_types_its_other_options(source):
    hint = typing.get_type_hints(source.__init__)["options"]
    assert hint == typing.Unpack[DataModuleOptions]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.__name__)
def test_no_source_has_an_old_name(source):
    assert not inspect.signature(source).parameters.keys() & RENAMED.keys()


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (ImageFolderDataModule, {"label_column": "y"}, r"'label_column'; pass target=\.\.\."),
        (ImageFolderDataModule, {"crop_first": False}, r'image_options=\{"fast_transforms": \.'),
        (ImageFolderDataModule, {"cache": "ram"}, r'pass image_options=\{"cache": \.\.\.\}'),
        (CIFAR10DataModule, {"mean": [0.5] * 3}, r'pass image_options=\{"mean": \.\.\.\}'),
        (DatasetDataModule, {"target_key": "y"}, r"pass target=\.\.\."),
        (DatasetDataModule, {"input_key": "x"}, r"pass inputs=\.\.\."),
        (TextDataModule, {"path": "t.csv", "label": 1}, r"TextDataModule has no option 'label'"),
        (
            TabularDataModule,
            {"path": "t.csv", "target": "y", "group_column": "who"},
            r'pass split_options=\{"group": \.\.\.\}',
        ),
        (
            TabularDataModule,
            {"path": "t.csv", "target": "y", "split_column": "part"},
            r'pass split_options=\{"column": \.\.\.\}',
        ),
        # not an option of tables at all: Python's own message
        (
            TabularDataModule,
            {"path": "t.csv", "target": "y", "mean": 1},
            "unexpected keyword .*mean",
        ),
    ],
)
def test_an_old_name_is_refused_with_the_new_one(source, options, message):
    with pytest.raises(TypeError, match=message):
        source(**options)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (
            ImageFolderDataModule,
            {"drat": True},
            "unknown image option 'drat'; did you mean 'draft'",
        ),
        (CIFAR10DataModule, {"cache": "ram"}, "unknown image option 'cache'; .*known: mean, std"),
        (DatasetDataModule, {"draft": True}, "known: mean, std, cache, cache_bytes"),
        (ImageFolderDataModule, {"cache_bytes": 9}, "no effect without"),
    ],
)
def test_an_impossible_image_option_is_refused(source, options, message):
    arguments = [PAIRS] if source is DatasetDataModule else ["photos"]
    with pytest.raises(ValueError, match=message):
        source(*arguments, image_options=options)


def test_transforms_can_be_set_on_every_source_that_takes_them(tmp_path):
    for source in SOURCES:
        if "train_transform" not in inspect.signature(source).parameters:
            assert source in (TabularDataModule, TextDataModule, FeaturesDataModule)
            continue
        dm = source(PAIRS) if source is DatasetDataModule else source(tmp_path)
        for name in ("train_transform", "eval_transform"):
            step = v2.Identity()
            setattr(dm, name, step)
            assert getattr(dm, name) is step
            assert dm.hparams[name] == "<Identity>"


class Doubled(nn.Module):
    def forward(self, x):
        return 2 * x


def test_a_transform_that_is_set_applies_to_the_next_batches():
    dm = DatasetDataModule(PAIRS, val_split=4, num_workers=0, train_transform=Doubled())
    assert dm.preview("train").inputs.max() == 2
    assert dm.preview("val").inputs.max() == 1
    dm.train_transform, dm.eval_transform = None, Doubled()
    assert dm.preview("train").inputs.max() == 1
    assert dm.preview("val").inputs.max() == 2
