"""Amounts of money as whole cents."""

import re

_AMOUNT = re.compile(r"(\d{1,9})(?:\.(\d{2}))?", re.ASCII)


def parse_amount(text: str) -> int:
    """The cents in ``text``, which looks like ``12`` or ``12.50``."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError("not an amount")
    return int(match[1]) * 100 + int(match[2] or 0)


def format_amount(cents: int) -> str:
    """``cents`` with two decimals and a sign only when negative."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02d}"
