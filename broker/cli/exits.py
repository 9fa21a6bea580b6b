"""The exit codes of the command, and which error gets which (cli.md)."""

from typing import Final

from protocol.errors import AirlockError, Fault, Refusal
from protocol.refusal_codes import RefusalCode

OK: Final = 0
UNSUCCESSFUL: Final = 1
USAGE: Final = 64
REFUSED: Final = 65
UNAVAILABLE: Final = 69
BUG: Final = 70
RECOVERABLE: Final = 75
DENIED: Final = 77
CONFIGURATION: Final = 78

_BY_REFUSAL: Final[dict[RefusalCode, int]] = {
    "usage": USAGE,
    "configuration_malformed": CONFIGURATION,
    "foreign_module": CONFIGURATION,
    "checkout_not_owned": DENIED,
    "image_unpinned": DENIED,
    "catalog_unpinned_image": DENIED,
}


def exit_code(error: AirlockError) -> int:
    """The exit code that ``error`` ends a command with."""
    match error:
        case Refusal():
            return _BY_REFUSAL.get(error.code, REFUSED)
        case Fault():
            return UNAVAILABLE if error.code.startswith(("engine", "sandbox")) else RECOVERABLE
        case _:
            return BUG
