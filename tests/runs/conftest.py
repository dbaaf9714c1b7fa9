from __future__ import annotations

import pytest
from script_runs import OWN, fit, on_images, write_images


@pytest.fixture
def run(capfd):
    """Run ``fit.py`` in this process; return exit code, stdout and stderr."""

    def run(*arguments):
        try:
            code = fit.main([str(argument) for argument in arguments])
        except SystemExit as stop:  # --help and --print_config
            code = stop.code
        return code, *capfd.readouterr()

    return run


@pytest.fixture
def images(tmp_path):
    """Options for a folder of images."""
    return on_images(write_images(tmp_path / "images"))


@pytest.fixture
def own(tmp_path):
    """A module with the user's own classes."""
    (tmp_path / "own.py").write_text(OWN)
