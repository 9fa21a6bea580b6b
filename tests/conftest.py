"""Options and markers that every suite shares."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the full form of slow suites")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    skip = pytest.mark.skip(reason="full form: run with --full")
    for item in items:
        if item.get_closest_marker("full") is not None:
            item.add_marker(skip)
