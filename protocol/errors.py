"""The exceptions of airlock: who is at fault, a closed code, and a fixed sentence.

A ``Refusal`` says that the input is not acceptable and that trying it again changes
nothing. A ``Fault`` says that the world failed and that trying again may work. A
``ProtocolError`` says which side of a pipe broke the protocol. Decisions are values,
not exceptions; anything else that is raised is a bug. The text of each is one of a
finite set: nothing that a peer wrote can appear in it.
"""

from typing import Final

from protocol.codes import VIOLATION_TEXT, FrameReason, ViolationCode
from protocol.refusal_codes import (
    FAULT_TEXT,
    REFUSAL_TEXT,
    CatalogFault,
    CatalogField,
    FaultCode,
    RefusalCode,
)


class AirlockError(Exception):
    """What every exception that airlock defines derives from."""


class Refusal(AirlockError):
    """The input is not acceptable. Trying it again changes nothing.

    ``figure`` is an optional number that belongs to the code (the bound that was
    passed, the line of a malformed file, the index of a recipe); ``field`` and ``fault``
    say what is wrong with a catalog. All of it is ours, never the peer's text.
    """

    def __init__(
        self,
        code: RefusalCode,
        *,
        figure: int | None = None,
        field: CatalogField | None = None,
        fault: CatalogFault | None = None,
    ) -> None:
        super().__init__(REFUSAL_TEXT[code])
        self.code: Final = code
        self.figure: Final = figure
        self.field: Final = field
        self.fault: Final = fault


class Fault(AirlockError):
    """The world failed. Trying again may work. The cause is chained."""

    def __init__(self, code: FaultCode) -> None:
        super().__init__(FAULT_TEXT[code])
        self.code: Final = code


class ProtocolError(AirlockError):
    """A rule of the protocol was broken; see the two subclasses for by whom."""

    def __init__(self, code: ViolationCode, reason: FrameReason | None = None) -> None:
        if type(self) is ProtocolError:
            raise TypeError("raise LocalProtocolError or RemoteProtocolError")
        super().__init__(VIOLATION_TEXT[code])
        self.code: Final = code
        self.reason: Final = reason


class LocalProtocolError(ProtocolError):
    """We tried to break the protocol: our bug. Nothing changed."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol. The connection is in its error state."""
