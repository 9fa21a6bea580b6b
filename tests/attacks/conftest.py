"""The fixtures of whole attempts, for attacks on them."""

from tests.attempts.conftest import bwrap, puppet, repo, state

__all__ = ["bwrap", "puppet", "repo", "state"]
