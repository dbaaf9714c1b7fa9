"""The commands and Python examples of the guides (README files of folders) work as written."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from pathlib import Path

import jsonargparse
import pytest
from script_runs import CPU, SCRIPTS, as_if_alone, write_photos  # noqa: F401 - an autouse fixture

ROOT = SCRIPTS.parent
GUIDES = sorted(path for folder in ("scripts", "datamodules", "tests")
                for path in (ROOT / folder).rglob("README.md"))  # fmt: skip
FEW_BATCHES = [f"--limit_{split}_batches=2" for split in ("train", "val", "test")]
# options that make a command quick; the other scripts parse their arguments only
QUICK = {
    "fit": ["--max_epochs=1", *FEW_BATCHES, *CPU],
    "predict": CPU,
    "inspect_data": [],
    "bisect_data": [],
    "channel_statistics": [],
    "pack_images": [],
    "precompute_features": [],
}
NOT_HERE = ("--devices", "gpu")


class Parsed(BaseException):
    """Raised instead of running a command, after its arguments are parsed."""


def commands(text: str) -> list[list[str]]:
    """Return the ``python scripts/...`` commands of fenced and indented blocks."""
    joined = re.sub(r"\\\n\s*", "", text)
    lines = re.findall(r"^(?: {4}|\t)?python scripts/(\S+\.py.*)$", joined, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


def run(command: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a command in this process if it is quick, else parse its arguments."""
    script, *arguments = command
    module = importlib.import_module(Path(script).stem)
    if module.__name__ in QUICK and not set(NOT_HERE) & set(arguments):
        quick = [o for o in QUICK[module.__name__] if o.partition("=")[0] not in arguments]
        # weights would be downloaded
        return module.main([{"DEFAULT": "null"}.get(a, a) for a in [*arguments, *quick]])
    with monkeypatch.context() as patch:
        for parser in (argparse.ArgumentParser, jsonargparse.ArgumentParser):
            patch.setattr(parser, "parse_args", parse_and_stop(parser.parse_args))
        try:
            return module.main(arguments)
        except Parsed:
            return 0


def parse_and_stop(parse_args):
    def parse(*arguments, **options):
        parse_args(*arguments, **options)
        raise Parsed

    return parse


def test_there_are_guides_with_commands():
    guides = {str(path.relative_to(ROOT)): commands(path.read_text("utf-8")) for path in GUIDES}
    assert len(guides["scripts/README.md"]) > 15
    assert ["bench.py", "exactness", "--markdown"] in guides["scripts/benchmarks/README.md"]


@pytest.mark.parametrize("command", [["tune_loader.py", "--secnds", "1"], ["bench.py", "plan"]])
def test_a_wrong_argument_in_a_guide_is_found(command, monkeypatch, capsys):
    try:
        code = run(command, monkeypatch)
    except SystemExit as stop:
        code = stop.code
    assert code == 2


@pytest.mark.timeout(400)
@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_commands_of_a_guide_work_in_their_order(guide, monkeypatch, capsys):
    write_photos(Path())
    Path("scripts").symlink_to(SCRIPTS)
    for command in commands(guide.read_text(encoding="utf-8")):
        try:
            code = run(command, monkeypatch)
        except SystemExit as stop:  # --help
            code = stop.code
        assert code == 0, f"python scripts/{shlex.join(command)}\n{capsys.readouterr().err}"


@pytest.mark.timeout(200)
@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_python_examples_of_a_guide_run(guide):
    write_photos(Path())
    names: dict[str, object] = {"__name__": "guide"}
    for block in re.findall(r"```python\n(.*?)```", guide.read_text("utf-8"), re.DOTALL):
        exec(block, names)
