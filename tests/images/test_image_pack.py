from __future__ import annotations

import csv
import json
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from made_images import encode
from processes import run_program
from script_runs import SCRIPTS, fit

import datamodules.images.packs.writer as pack_writer
from datamodules import ImageFolderDataModule
from datamodules.images.decode.decode import decode_image
from datamodules.images.packs.image_pack import FILE, SLICES, ImagePack, PackError
from datamodules.images.packs.writer import write_pack
from tests.images.test_jpeg_slices import needs_jpegtran, noisy

sys.path.append(str(SCRIPTS))
import pack_images


@pytest.fixture(scope="session")
def made_photos(tmp_path_factory) -> Path:
    """Two classes of 20 JPEGs, among them progressive, grey and CMYK ones, and a PNG."""
    root = tmp_path_factory.mktemp("made") / "photos"
    for i in range(40):
        image, options = noisy(90 + i, 70 + i % 7, i), {"quality": 80}
        if i == 3:
            options["progressive"] = True
        if i == 5:
            image = image.convert("L")
        if i == 7:
            image = image.convert("CMYK")
        if i == 9:
            exif = image.getexif()
            exif[0x0112] = 6
            options["exif"] = exif.tobytes()
        path = root / ("cat" if i % 2 else "dog") / f"{i:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(image, "JPEG", **options))
    (root / "cat" / "a.png").write_bytes(encode(noisy(40, 50), "PNG"))
    return root


@pytest.fixture
def photos(made_photos, tmp_path) -> Path:
    return Path(shutil.copytree(made_photos, tmp_path / "photos"))


def module(photos, **options):
    options = {"image_size": 32, "batch_size": 8, "num_workers": 0, "seed": 1, **options}
    return ImageFolderDataModule(photos, **options)


def same_pixels(pack: ImagePack, root: Path) -> None:
    for row, name in enumerate(pack.names()):
        packed = np.array(decode_image(pack.content(row), name=name))
        assert np.array_equal(packed, np.array(decode_image(root / name))), name


@needs_jpegtran
def test_a_slice_pack_has_the_pixels_of_the_files_and_says_what_it_kept_whole(photos, tmp_path):
    pack = write_pack(photos, tmp_path / "x.pack", workers=2)
    same_pixels(pack, photos)
    kept = {reason: said["names"] for reason, said in pack.report["kept_whole"].items()}
    assert kept == {
        "not a JPEG": ["cat/a.png"],
        "CMYK": ["cat/07.jpg"],
        "needs its EXIF turn or profile": ["cat/09.jpg"],
    }
    forms = dict(zip(pack.names(), pack.records["form"].tolist(), strict=True))
    assert forms["cat/03.jpg"] == SLICES  # progressive, converted without loss
    assert forms["cat/07.jpg"] == FILE
    assert not (tmp_path / "x.pack.partial").exists()
    assert not (tmp_path / "x.pack.lock").exists()


@needs_jpegtran
@pytest.mark.parametrize("kind", ["slice", "resized-raw", "resized-jpeg"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_box_equals_the_crop_of_the_packed_image(photos, tmp_path, kind, mode):
    pack = write_pack(photos, tmp_path / "x.pack", kind=kind, size=64)
    for row in range(len(pack)):
        whole = np.atleast_3d(np.array(decode_image(pack.content(row), mode=mode)))
        box = pack.decode_box(row, 10, 15, 20, 25, mode=mode)
        assert np.array_equal(box.permute(1, 2, 0).numpy(), whole[10:30, 15:40])
        image = pack.image(row, mode=mode)
        assert (image.height, image.width) == whole.shape[:2]
        assert np.array_equal(image.box(10, 15, 20, 25), whole[10:30, 15:40])
        with pytest.raises(ValueError, match="is not inside the image"):
            pack.decode_box(row, 10, 15, 20, 500)


@pytest.mark.parametrize("kind", ["resized-raw", "resized-jpeg"])
def test_a_resized_pack_makes_images_smaller_and_says_by_how_much_pixels_change(
    photos, tmp_path, kind
):
    pack = write_pack(photos, tmp_path / "x.pack", kind=kind, size=64)
    assert 0 < pack.report["mean_pixel_change"] < 40
    for row, name in enumerate(pack.names()):
        packed, whole = decode_image(pack.content(row)), decode_image(photos / name)
        assert min(packed.size) == min(64, *whole.size)
    with pytest.raises(ValueError, match="size must be at least 1"):
        write_pack(photos, tmp_path / "y.pack", kind=kind, size=0)


@needs_jpegtran
@pytest.mark.parametrize("workers", [0, 2])
def test_with_a_slice_pack_splits_labels_and_batches_are_the_same(photos, tmp_path, workers):
    write_pack(photos, tmp_path / "x.pack")
    plain, packed = (
        module(photos),
        module(photos, image_options={"pack": tmp_path / "x.pack"}, num_workers=workers),
    )
    for split in ("train", "val"):
        pairs = zip(plain.batches(split), packed.batches(split), strict=True)
        assert all(torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in pairs)
    assert plain.split_fingerprint() == packed.split_fingerprint()
    assert packed.train_dataset.describe(0) == plain.train_dataset.describe(0)


@pytest.mark.runs
@needs_jpegtran
def test_spawned_workers_read_a_pack(photos, tmp_path):
    write_pack(photos, tmp_path / "x.pack")
    options = {"image_options": {"pack": tmp_path / "x.pack"}, "num_workers": 1}
    packed = module(photos, loader_options={"multiprocessing_context": "spawn"}, **options)
    pairs = zip(module(photos).batches("val"), packed.batches("val"), strict=True)
    assert all(torch.equal(a[0], b[0]) for a, b in pairs)


@needs_jpegtran
def test_a_pack_pickles_without_its_maps(photos, tmp_path):
    pack = write_pack(photos, tmp_path / "x.pack")
    pack.content(0)
    again = pickle.loads(pickle.dumps(pack))
    assert len(pickle.dumps(pack)) < 4000
    assert again.content(3) == pack.content(3)


@pytest.fixture
def raw_pack(photos, tmp_path) -> Path:
    write_pack(photos, tmp_path / "x.pack", kind="resized-raw", size=32)
    return tmp_path / "x.pack"


def test_a_pack_that_was_cut_is_refused(raw_pack):
    shard = raw_pack / "00000.bin"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(PackError, match=r"00000\.bin should have .* bytes"):
        ImagePack(raw_pack)
    shard.unlink()
    with pytest.raises(PackError, match="is missing"):
        ImagePack(raw_pack)


@pytest.mark.parametrize("name", ["records.npy", "names.bin"])
def test_a_changed_index_is_refused(raw_pack, name):
    content = bytearray((raw_pack / name).read_bytes())
    content[-1] ^= 1
    (raw_pack / name).write_bytes(bytes(content))
    with pytest.raises(PackError, match="its index was changed"):
        ImagePack(raw_pack)


def test_an_index_that_points_outside_is_refused_though_its_digest_fits(raw_pack):
    records = np.load(raw_pack / "records.npy")
    for field, value in (("offset", -1), ("offset", 2**62), ("length", 2**62), ("shard", 99)):
        wrong = records.copy()
        wrong[field][2] = value
        np.save(raw_pack / "records.npy", wrong)
        manifest = json.loads((raw_pack / "pack.json").read_text())
        manifest["index"] = pack_writer.index_digest(raw_pack)
        (raw_pack / "pack.json").write_text(json.dumps(manifest))
        with pytest.raises(PackError, match="outside"):
            ImagePack(raw_pack)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version 2, this release reads 1"),
        ({"format": "other"}, "not a pack of images"),
        ({"kind": "pickle"}, "kind"),
        ({"shards": ["x"]}, "shards"),
        ({"count": 7}, "7 records"),
    ],
)
def test_an_inconsistent_manifest_is_refused(raw_pack, change, said):
    manifest = json.loads((raw_pack / "pack.json").read_text())
    (raw_pack / "pack.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(PackError, match=said):
        ImagePack(raw_pack)


def test_a_damaged_manifest_and_an_absent_pack_are_told_apart(raw_pack, tmp_path):
    (raw_pack / "pack.json").write_text("{")
    with pytest.raises(PackError, match="cannot be read"):
        ImagePack(raw_pack)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        ImagePack(tmp_path / "none.pack")
    (tmp_path / "none.pack.partial").mkdir()
    with pytest.raises(FileNotFoundError, match="not finished"):
        ImagePack(tmp_path / "none.pack")


def test_a_folder_that_no_longer_fits_its_pack_is_refused(photos, raw_pack):
    changed = photos / "dog" / "00.jpg"
    content = changed.read_bytes()
    changed.write_bytes(content + b"\0")
    with pytest.raises(PackError, match=r"1 of .* changed, the first is 'dog/00.jpg'"):
        [*module(photos, image_options={"pack": raw_pack}, val_split=1).batches("train")]
    changed.write_bytes(content)
    with pytest.raises(PackError, match="another mtime"):
        module(photos, image_options={"pack": raw_pack}, val_split=1).setup()
    shutil.copy(changed, photos / "dog" / "new.jpg")
    with pytest.raises(PackError, match=r"has no entry for 1 of .*'dog/new.jpg'"):
        module(photos, image_options={"pack": raw_pack}, val_split=1).setup()


def test_a_pack_goes_with_one_root(photos, raw_pack, tmp_path):
    other = shutil.copytree(photos, tmp_path / "more")
    with pytest.raises(ValueError, match="one root"):
        ImageFolderDataModule([str(photos), str(other)], image_options={"pack": raw_pack}).setup()


def test_stopped_it_goes_on_with_what_is_missing(photos, tmp_path, monkeypatch):
    made: list[str] = []
    real = pack_writer.make_form

    def stopping(options, after):
        form = real(options)

        def make(content, name, measure):
            made.append(name)
            if len(made) == after:
                raise KeyboardInterrupt
            return form(content, name, measure)

        return make

    monkeypatch.setattr(pack_writer, "SHARD_BYTES", 4000)
    options = {"kind": "resized-raw", "size": 32, "workers": 1}
    monkeypatch.setattr(pack_writer, "make_form", lambda o: stopping(o, 30))
    with pytest.raises(KeyboardInterrupt):
        write_pack(photos, tmp_path / "x.pack", **options)
    before = len(made)
    monkeypatch.setattr(pack_writer, "make_form", lambda o: stopping(o, -1))
    monkeypatch.setattr(pack_writer, "SAMPLE", 1)
    pack = write_pack(photos, tmp_path / "x.pack", **options)
    assert len(made) - before < 20  # not all 41 anew
    fresh = write_pack(photos, tmp_path / "y.pack", **options)
    assert [pack.stored(i)[1].tobytes() for i in range(41)] == [
        fresh.stored(i)[1].tobytes() for i in range(41)
    ]


def test_a_pack_that_holds_is_kept_and_one_of_other_files_replaced(photos, raw_pack):
    before = (raw_pack / "pack.json").stat().st_mtime_ns
    write_pack(photos, raw_pack, kind="resized-raw", size=32)
    assert (raw_pack / "pack.json").stat().st_mtime_ns == before
    (photos / "dog" / "00.jpg").unlink()
    assert len(write_pack(photos, raw_pack, kind="resized-raw", size=32)) == 40
    assert len(ImagePack(raw_pack)) == 40
    assert not raw_pack.with_name("x.pack.old").exists()


def test_an_invalid_folder_for_a_pack_is_refused(photos, tmp_path):
    for out, error, said in (
        (photos / "x.pack", ValueError, "would be inside"),
        (tmp_path / "a" / "x.pack", FileNotFoundError, "does not exist"),
        (tmp_path, FileExistsError, "not a pack"),
    ):
        with pytest.raises(error, match=said):
            write_pack(photos, out, kind="resized-raw")


KILLED = """
import sys, time
import datamodules.images.packs.writer as w
real = w.make_form
def slow(options):
    form = real(options)
    def make(content, name, measure):
        print(name, flush=True)
        time.sleep(0.05)
        return form(content, name, measure)
    return make
w.make_form, w.SHARD_BYTES = slow, 4000
w.write_pack(sys.argv[1], sys.argv[2], kind="resized-raw", size=32, workers=1)
"""


@pytest.mark.runs
def test_a_second_writer_is_refused_and_a_killed_one_leaves_nothing_in_the_way(
    photos, tmp_path, monkeypatch
):
    monkeypatch.setattr(pack_writer, "SHARD_BYTES", 4000)
    out = tmp_path / "x.pack"
    command = [sys.executable, "-c", KILLED, str(photos), str(out)]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout is not None
        for _ in range(12):
            assert first.stdout.readline()
        with pytest.raises(RuntimeError, match="another process is writing"):
            write_pack(photos, out, kind="resized-raw", size=32)
        with pytest.raises(FileNotFoundError, match="not finished"):
            ImagePack(out)
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait(timeout=60)
        first.stdout.close()
    assert len(list(tmp_path.glob("x.pack.partial/*.json"))) > 3  # the plan and whole shards
    assert len(write_pack(photos, out, kind="resized-raw", size=32)) == 41
    left = {path.suffix for path in out.iterdir()}
    assert left == {".bin", ".npy", ".json"}
    assert len(list(out.glob("*.npy"))) == len(list(out.glob("*.json"))) == 1


FULL = """
import resource, sys
from datamodules.images.packs.writer import write_pack
before = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))
try:
    write_pack(sys.argv[1], sys.argv[2], kind="resized-raw", size=32, workers=2)
except OSError as error:
    print("refused:", error)
resource.setrlimit(resource.RLIMIT_FSIZE, before)  # what measures coverage writes at the end
"""


@pytest.mark.runs
def test_a_full_disk_is_an_error_and_what_was_there_stays(photos, raw_pack, tmp_path):
    (photos / "dog" / "00.jpg").unlink()
    program = tmp_path / "full.py"
    program.write_text(FULL)
    said = run_program(program, str(photos), str(raw_pack), PYTHONPATH=str(SCRIPTS.parent))
    assert "refused" in said
    assert len(ImagePack(raw_pack)) == 41
    assert len(write_pack(photos, raw_pack, kind="resized-raw", size=32)) == 40


@needs_jpegtran
def test_the_script_packs_and_says_what_it_did(photos, capsys):
    assert pack_images.main([str(photos)]) == 0
    said = capsys.readouterr().out
    assert "1: CMYK (cat/07.jpg)" in said
    assert "the same; each file was compared" in said
    same_pixels(ImagePack(photos.with_name("photos-slice.pack")), photos)
    assert pack_images.main([str(photos), "--kind", "resized-jpeg", "--size", "40"]) == 0
    assert "changed:" in capsys.readouterr().out


def test_the_script_says_how_to_get_jpegtran(photos, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert pack_images.main([str(photos)]) == 1
    assert "libjpeg-turbo-progs" in capsys.readouterr().err


def test_ctrl_c_says_that_it_can_be_gone_on_with(photos, capsys, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(pack_images, "write_pack", stop)
    assert pack_images.main([str(photos)]) == 130
    assert "the same command resumes" in capsys.readouterr().err


@needs_jpegtran
def test_fit_with_a_slice_pack_gives_the_metrics_of_a_fit_without(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_pack(photos, tmp_path / "x.pack")
    metrics = []
    for name, more in (
        ("plain", []),
        ("packed", ["--data.image_options.pack", str(tmp_path / "x.pack")]),
    ):
        command = ["--data", "ImageFolderDataModule", "--data.root", str(photos)]
        command += ["--data.image_size", "32", "--data.num_workers", "0", "--max_epochs", "1"]
        command += ["--accelerator", "cpu", "--runs_dir", str(tmp_path / name), *more]
        assert fit.main(command) == 0
        with next((tmp_path / name).rglob("metrics.csv")).open() as file:
            rows = [*csv.DictReader(file)]
        clocks = ("train_data_wait", "train_samples_per_second")
        metrics.append([{k: v for k, v in row.items() if k not in clocks} for row in rows])
    assert metrics[0] == metrics[1]
    assert any(row.get("val_loss") for row in metrics[0])
