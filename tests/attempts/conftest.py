"""What the attempt tests share: a state folder, a checkout, a place for results."""

import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.attempts.checkouts import checkout
from tests.attempts.puppetry import play
from tests.engine_presence import require


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
    require("bubblewrap")


@pytest.fixture
def puppet(bwrap: None, repo: Path, state: Path, tmp_path: Path) -> Any:
    """``await puppet(steps, **changes)``: an attempt on ``repo`` under bubblewrap."""
    return partial(play, repo=repo, state=state, out=tmp_path / "out")
