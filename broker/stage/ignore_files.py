"""Where git's ignore rules of one checkout stand; opened without following a link or waiting."""

import os
import stat
from pathlib import Path
from typing import Final

import pygit2
from pygit2.enums import ConfigLevel

from broker.stage.bounds import PRODUCT_BOUNDS
from broker.stage.checkout import Checkout
from broker.stage.ignoring import IgnoreRules
from broker.stage.openat import read_file
from protocol.errors import Refusal

_NO_RULES: Final = IgnoreRules.parse(b"")


class IgnoreFiles:
    """The ignore file of each folder, ``info/exclude`` and the user's ``core.excludesFile``."""

    def __init__(self, checkout: Checkout) -> None:
        self._fold_case: Final = checkout.flag("core.ignoreCase", default=False)
        self._files: Final = (checkout.common_folder / "info" / "exclude", _user_file(checkout))
        self._rules: list[IgnoreRules] | None = None

    def of_folder(self, handle: int) -> IgnoreRules:
        """The rules of the folder's own ignore file; none when it is no regular file."""
        try:
            found = os.stat(".gitignore", dir_fd=handle, follow_symlinks=False)
            if not stat.S_ISREG(found.st_mode):
                return _NO_RULES
            data, _ = read_file(handle, ".gitignore", PRODUCT_BOUNDS)
        except OSError:
            return _NO_RULES
        return IgnoreRules.parse(data, fold_case=self._fold_case)

    def is_ignored(self, raw: bytes, *, is_folder: bool) -> bool:
        """What the rules outside of the tree say, when those inside say nothing."""
        if self._rules is None:
            self._rules = [self._read(path) for path in self._files if path is not None]
        for rules in self._rules:
            verdict = rules.verdict(raw, is_folder=is_folder)
            if verdict is not None:
                return verdict
        return False

    def _read(self, path: Path) -> IgnoreRules:
        try:
            # The user's own file may be a link, as dotfiles often are; a FIFO is not read.
            real = os.path.realpath(path)
            handle = os.open(os.path.dirname(real), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return _NO_RULES
        try:
            data, _ = read_file(handle, os.path.basename(real), PRODUCT_BOUNDS)
        except OSError:
            return _NO_RULES
        except Refusal as refusal:
            if refusal.code != "checkout_changed":
                raise
            # Not a regular file.
            return _NO_RULES
        finally:
            os.close(handle)
        return IgnoreRules.parse(data, fold_case=self._fold_case)


def _user_file(checkout: Checkout) -> Path | None:
    named = checkout.text("core.excludesFile")
    if named is None:
        folder = pygit2.settings.search_path[ConfigLevel.XDG].partition(os.pathsep)[0]
        return Path(folder, "ignore") if folder else None
    if named.startswith("~/"):
        home = pygit2.settings.homedir
        return Path(home, named[2:]) if home else None
    return (checkout.root or checkout.git_folder) / named
