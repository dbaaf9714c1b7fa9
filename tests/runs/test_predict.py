from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from processes import run_program
from script_runs import (  # noqa: F401 - a fixture that is there by being known
    CPU,
    OWN,
    SCRIPTS,
    as_if_alone,
    fit,
    on_images,
    predict,
    predictions,
    write_images,
)
from warm_start import run_warm


@pytest.fixture
def run(capfd):
    def run(*arguments):
        try:
            code = predict.main([str(argument) for argument in (*arguments, *CPU)])
        except SystemExit as stop:  # --help
            code = stop.code
        return code, *capfd.readouterr()

    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A checkpoint of three classes; the folder it was trained on is gone."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS", "DATAMODULES_FIRST_ERROR"):
            patch.setenv(name, "0")
        write_images(folder / "images")
        torch.set_num_threads(1)  # as in as_if_alone, which is not there yet
        assert fit.main([*on_images(folder / "images"), "--max_epochs", "10"]) == 0
    shutil.rmtree(folder / "images")
    return folder / "runs" / "image_folder-1" / "checkpoints" / "best.ckpt"


@pytest.fixture
def flat(tmp_path):
    """Seven images p0 to p6 in no class folder, dark and light in turn."""
    folder = tmp_path / "new"
    folder.mkdir()
    for number in range(7):
        pixels = np.full((8, 8), 235 if number % 2 else 20, np.uint8)
        Image.fromarray(pixels).save(folder / f"p{number}.png")
    return folder


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)


def table(path="predictions.csv"):
    return pl.read_csv(path) if str(path).endswith(".csv") else pl.read_parquet(path)


def trained_on(own_class, *flags):
    assert fit.main(["--data", own_class, "--max_epochs", "1", *flags, *CPU]) == 0
    return next(Path("runs").glob("*-1")) / "checkpoints" / "best.ckpt"


EXPECTED = ["light" if number % 2 else "dark" for number in range(7)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_h15_each_file_once_in_order_whatever_batch_and_workers(
    run, trained, flat, batch_size, workers
):
    given = ["--data.eval_batch_size", batch_size, "--data.num_workers", workers]
    code, out, err = run("--ckpt_path", trained, "--predict_path", flat, *given)
    assert (code, err) == (0, "")
    assert "7 rows in predictions.csv" in out
    found = table()
    assert found.columns == ["path", "class", "probability"]
    assert [Path(p).name for p in found["path"]] == [f"p{n}.png" for n in range(7)]
    assert found["class"].to_list() == EXPECTED
    assert found["probability"].is_between(1 / 3, 1).all()


def test_h15_two_processes_write_the_same_table_as_one(run, trained, flat):
    given = ["--ckpt_path", trained, "--predict_path", flat, "--data.eval_batch_size", 3]
    assert run(*given, "--data.num_workers", 0, "--out", "one.csv")[0] == 0
    two = ["--devices", 2, "--strategy", "ddp", "--data.num_workers", 2, "--out", "two.csv"]
    command = [SCRIPTS / "predict.py", *given, *two, *CPU]
    out = run_program(*command, timeout=200, OMP_NUM_THREADS="1")
    assert out.count("7 rows in two.csv") == 1
    assert len(table("two.csv")) == 7
    assert table("two.csv").equals(table("one.csv"))


@pytest.mark.filterwarnings("ignore:1 of 7 predict files")
def test_an_unreadable_file_keeps_its_row_without_a_prediction(run, trained, flat):
    (flat / "p2.png").write_text("no image")
    given = ["--ckpt_path", trained, "--predict_path", flat, "--data.on_error", "skip"]
    code, said, wrong = run(*given, "--data.eval_batch_size", 1, "--out", "one.csv")
    assert code == 0, wrong
    assert "1 of them without a prediction, unreadable:" in said
    found = table("one.csv")
    assert [Path(p).name for p in found["path"]] == [f"p{n}.png" for n in range(7)]
    answers = [None if n == 2 else name for n, name in enumerate(EXPECTED)]
    assert found["class"].to_list() == answers
    assert found["probability"].null_count() == 1
    two = ["--devices", 2, "--strategy", "ddp", "--data.num_workers", 0, "--out", "two.csv"]
    command = [SCRIPTS / "predict.py", *given, "--data.eval_batch_size", 3, *two, *CPU]
    assert "1 of them without" in run_warm(*command, ranks=2, timeout=200)
    assert table("two.csv").equals(found)


def test_parquet_and_all_probabilities(run, trained, flat):
    given = ["--out", "new/table.parquet", "--all_probabilities"]
    assert run("--ckpt_path", trained, "--predict_path", flat, *given)[0] == 0
    found = table("new/table.parquet")
    names = ["probability_dark", "probability_grey", "probability_light"]
    assert found.columns == ["path", "class", "probability", *names]
    shares = found.select(names).to_numpy()
    assert np.abs(shares.sum(1) - 1).max() < 1e-5
    assert np.array_equal(shares.max(1), found["probability"].to_numpy())
    assert sorted(p.name for p in flat.iterdir()) == [f"p{n}.png" for n in range(7)] + [
        "table.parquet"
    ]


def test_one_file_can_be_predicted(run, trained, flat):
    assert run("--ckpt_path", trained, "--predict_path", flat / "p1.png")[0] == 0
    assert table()["class"].to_list() == ["light"]


def test_class_names_come_from_the_checkpoint_and_not_from_folders(run, trained, flat):
    (flat / "grey").mkdir()
    (flat / "p0.png").rename(flat / "grey" / "p0.png")
    assert run("--ckpt_path", trained, "--predict_path", flat)[0] == 0
    by_name = {Path(p).name: name for p, name in zip(*table()["path", "class"], strict=True)}
    assert by_name["p0.png"] == "dark"


def test_a_checkpoint_of_another_program_is_read(run, trained, flat):
    content = torch.load(trained, weights_only=True)
    del content["written_by"]
    torch.save(content, "plain.ckpt")
    assert run("--ckpt_path", "plain.ckpt", "--predict_path", flat)[0] == 0
    assert table()["class"].to_list() == EXPECTED


def test_regression_has_a_column_of_numbers(run, own):
    checkpoint = trained_on("own.Numbers", "--model", "Regressor")
    code, _, err = run("--ckpt_path", checkpoint, "--predict_path", "x", "--data", "own.Numbers")
    assert (code, err) == (0, "")
    assert table().columns == ["row", "prediction"]
    assert table()["row"].to_list() == [0, 1, 2, 3, 4]


def test_the_users_own_class_is_imported_only_if_named(run, own):
    checkpoint = trained_on("own.Points", "--model", "own.OwnModel")
    code, _, err = run("--ckpt_path", checkpoint, "--predict_path", "x")
    assert code == 2
    assert "pass --data own.Points" in err
    named = ["--data", "own.Points", "--model", "own.OwnModel"]
    code, _, err = run("--ckpt_path", checkpoint, "--predict_path", "x", *named)
    assert (code, err) == (0, "")
    assert table().columns == ["row", "class", "probability"]
    assert set(table()["class"]) <= {"minus", "plus"}


def test_a_plain_lightning_datamodule_can_be_predicted(run, own):
    checkpoint = trained_on("own.Plain", "--model", "own.OwnModel")
    named = ["--data", "own.Plain", "--model", "own.OwnModel"]
    code, _, err = run("--ckpt_path", checkpoint, *named)
    assert (code, err) == (0, "")
    assert table()["class"].to_list() == [0] * 5 or table()["class"].to_list() == [1] * 5


def write_table(path, *, ids=True):
    rows = [
        f"{f'r{n},' if ids else ''}{n % 7},{n * 0.5},{'ab'[n % 2]},{n},{2 * n}" for n in range(40)
    ]
    Path(path).write_text(f"{'key,' if ids else ''}x,y,kind,t,u\n" + "\n".join(rows) + "\n")


def test_table_rows_are_named_by_their_id(run):
    write_table("rows.csv")
    checkpoint = trained_on(
        "TabularDataModule", "--data.path", "rows.csv", "--data.target", "kind",
        "--data.id_column", "key", "--data.drop", "[t, u]",
    )  # fmt: skip
    Path("rows.csv").rename("new.csv")
    code, _, err = run("--ckpt_path", checkpoint, "--predict_path", "new.csv")
    assert (code, err) == (0, "")
    assert table().columns == ["key", "class", "probability"]
    assert table()["key"].to_list() == [f"r{n}" for n in range(40)]
    assert set(table()["class"]) <= {"a", "b"}


def test_several_table_targets_are_named(run):
    write_table("rows.csv", ids=False)
    checkpoint = trained_on(
        "TabularDataModule", "--data.path", "rows.csv", "--data.target", "[t, u]",
        "--model", "Regressor",
    )  # fmt: skip
    code, _, err = run("--ckpt_path", checkpoint, "--predict_path", "rows.csv")
    assert (code, err) == (0, "")
    assert table().columns == ["row", "prediction_t", "prediction_u"]
    assert table()["row"].to_list() == list(range(40))


def test_texts_are_predicted(run):
    rows = [f"{'good fine nice' if n % 2 else 'bad poor sad'} {n},{n % 2}" for n in range(40)]
    Path("texts.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    checkpoint = trained_on("TextDataModule", "--data.path", "texts.csv")
    Path("new.csv").write_text("text\ngood\nbad\nsad\n")
    Path("texts.csv").unlink()
    code, _, err = run("--ckpt_path", checkpoint, "--predict_path", "new.csv")
    assert (code, err) == (0, "")
    assert table().columns == ["row", "class", "probability"]
    assert table()["row"].to_list() == [0, 1, 2]


def test_multilabel_classes_are_joined(tmp_path):
    writer = predictions.PredictionTable(tmp_path / "t.csv", task="multilabel", classes="abc")
    answers = writer.answers({"values": np.array([[0.9, 0.2, 0.75], [0.1, 0.2, 0.3]], "float32")})
    assert answers == {"classes": ["a|c", ""], "probabilities": ["0.9|0.75", ""]}


def test_each_target_has_a_column(tmp_path):
    writer = predictions.PredictionTable(
        tmp_path / "t.csv", task="regression", targets=["height", "weight"]
    )
    answers = writer.answers({"values": np.array([[1.5, 2], [3, 4]], "float32")})
    assert list(answers) == ["prediction_height", "prediction_weight"]
    assert answers["prediction_weight"].tolist() == [2, 4]


@pytest.mark.parametrize(
    "answer", [torch.tensor([[2.0, -1.0]]), torch.rand(1, 3), {"logits": 0}], ids=str
)
def test_predictions_that_are_not_probabilities_are_refused(tmp_path, answer):
    writer = predictions.PredictionTable(tmp_path / "t.csv", task="multiclass", classes="ab")
    with pytest.raises(ValueError, match=r"predict_step must return"):
        writer._checked(answer)


def test_a_table_is_written_completely_or_not_at_all(run, trained, flat):
    Path("predictions.csv").write_text("before")
    (flat / "p3.png").write_bytes(b"no image")
    code, _, err = run("--ckpt_path", trained, "--predict_path", flat)
    assert code == 1
    assert "p3.png" in err
    assert "Traceback" not in err
    assert Path("predictions.csv").read_text() == "before"
    assert not list(Path().glob(".predictions*"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "pass --predict_path"),
        (["--predict_path", "new", "--out", "table.txt"], "ends in .csv or .parquet"),
        (["--predict_path", "new", "--predct_path", "new"], "did you mean '--predict_path'?"),
        (["--predict_path", "new", "--data.batch_siz", "3"], "did you mean '--data.batch_size'?"),
        (["--predict_path", "new", "--batch_size", "3"], "did you mean '--data.batch_size'?"),
        (["--predict_path", "new", "--data.batch_size", "0"], "batch_size must be"),
        (
            ["--predict_path", "new", "--data", "ImageFolder"],
            "did you mean 'ImageFolderDataModule'?",
        ),
        (["--predict_path", "new", "--devices", "0"], "devices"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_gives_one_line_and_exit_code_2(run, trained, flat, arguments, said):
    code, out, err = run("--ckpt_path", trained, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ckpt_path", "absent.ckpt", "--predict_path", "new"], "absent.ckpt"),
        (["--ckpt_path", "new/p0.png", "--predict_path", "new"], "is not a checkpoint"),
        (["--predict_path", "nowhere"], "predict_path='nowhere' does not exist"),
        (["--predict_path", "empty"], "has no images"),
        (["--predict_path", "new", "--data", "CIFAR10DataModule"], "state of ImageFolderData"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_data_gives_one_line_and_exit_code_1(run, trained, flat, arguments, said):
    Path("empty").mkdir()
    code, _, err = run("--ckpt_path", trained, *arguments)
    assert code == 1
    assert said in err
    assert err.count("\n") == 1
    assert not Path("predictions.csv").exists()


def test_a_missing_checkpoint_option_is_reported(run):
    assert run() == (2, "", "error: pass --ckpt_path, the checkpoint of a training run\n")


def test_a_checkpoint_that_would_run_code_is_refused(run, flat):
    torch.save({"state_dict": {}, "where": Path("x")}, "odd.ckpt")
    code, _, err = run("--ckpt_path", "odd.ckpt", "--predict_path", flat)
    assert code == 1
    assert "only plain values and tensors" in err


def test_options_are_read_from_a_config_file(run, trained, flat):
    Path("all.yaml").write_text(
        f"ckpt_path: {trained}\npredict_path: {flat}\nout: named.csv\ndata:\n  batch_size: 2\n"
    )
    code, _, err = run("--config", "all.yaml")
    assert (code, err) == (0, "")
    assert len(table("named.csv")) == 7


def test_help_lists_the_arguments_of_the_checkpoints_classes(run, trained):
    code, out, _ = run("--help")
    assert code == 0
    assert "--predict_path" in out
    code, out, _ = run("--ckpt_path", trained, "--help")
    assert code == 0
    assert "--data.eval_transform" in out
