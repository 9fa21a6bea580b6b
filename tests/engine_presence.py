"""Which engines the tests ask for, and what a missing one means."""

import os

import pytest

from broker.engines.programs import find_program

PROGRAMS = {"bubblewrap": "bwrap", "podman": "podman"}


def require(name: str) -> None:
    """Skip for a missing engine, by name; in CI a missing engine is a failure."""
    if find_program(PROGRAMS[name]) is None:
        if os.environ.get("CI"):
            pytest.fail(f"{name} is not installed")
        pytest.skip(f"{name} is not installed")
