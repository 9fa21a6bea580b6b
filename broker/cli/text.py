"""Makes text that somebody else wrote safe to print on a terminal. Changes no other text."""

import unicodedata
from typing import Final

#: Categories that steer a terminal or hide text: controls, formats, surrogates, separators.
_STEERING: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def untrusted(text: str) -> str:
    """``text`` with every steering character but LF and TAB shown as an escape."""
    return "".join(
        char
        if char in "\n\t" or unicodedata.category(char) not in _STEERING
        else f"\\u{{{ord(char):x}}}"
        for char in text
    )


def untrusted_bytes(data: bytes) -> str:
    """``data`` as printable text; bytes that are not UTF-8 are shown as escapes."""
    return untrusted(data.decode("utf-8", "backslashreplace"))
