"""The configuration of whoever runs the tests has no part in them."""

from collections.abc import Iterator

import pygit2
import pytest
from pygit2.enums import ConfigLevel


@pytest.fixture(autouse=True, scope="session")
def _no_user_configuration() -> Iterator[None]:
    levels = (ConfigLevel.SYSTEM, ConfigLevel.GLOBAL, ConfigLevel.XDG)
    before = {level: pygit2.settings.search_path[level] for level in levels}
    for level in levels:
        pygit2.settings.search_path[level] = ""
    yield
    for level, path in before.items():
        pygit2.settings.search_path[level] = path
