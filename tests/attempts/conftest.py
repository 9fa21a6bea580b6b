"""What the attempt tests share: a state folder, a checkout, a place for results."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.engines.programs import find_program
from tests.attempts.checkouts import checkout
from tests.attempts.puppetry import play


@pytest.fixture(scope="session")
def state() -> Iterator[Path]:
    """A state folder that an unprivileged uid can pass, as the daemon's is."""
    folder = Path(tempfile.mkdtemp(prefix="airlock-attempts-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return checkout(tmp_path / "checkout")


@pytest.fixture
def bwrap() -> None:
    """Bubblewrap is there; in CI a missing one is a failure."""
    if find_program("bwrap") is None:
        if os.environ.get("CI"):
            pytest.fail("bubblewrap is not installed")
        pytest.skip("bubblewrap is not installed")


@pytest.fixture
def puppet(bwrap: None, repo: Path, state: Path, tmp_path: Path) -> Any:
    """``await puppet(steps, **changes)``: an attempt on ``repo`` under bubblewrap."""
    return partial(play, repo=repo, state=state, out=tmp_path / "out")
