"""Options and markers that every suite shares."""

from pathlib import Path

import pytest

ENGINES = Path(__file__).parent / "engines"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the full form of slow suites")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skip = pytest.mark.skip(reason="full form: run with --full")
    for item in items:
        if item.path.is_relative_to(ENGINES):
            # Engines share a machine's stores and limits: their tests run one after another.
            item.add_marker(pytest.mark.engine)
        if item.get_closest_marker("full") is not None and not config.getoption("--full"):
            item.add_marker(skip)
