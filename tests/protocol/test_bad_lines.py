"""Every kind of bad line gets its documented class and code, after the good ones before it."""

import pytest

from protocol.connection import NEED_DATA, BrokerConnection, Dropped, Rejected
from protocol.errors import RemoteProtocolError
from protocol.messages import Event
from protocol.state import AttemptState
from tests.protocol.bad_lines import BAD_LINES, BadLine
from tests.protocol.frames import GOOD, started


def outcome(connection: BrokerConnection) -> tuple[str, str, str | None]:
    """Class, code and reason of the next thing that comes out."""
    try:
        event = connection.next_event()
    except RemoteProtocolError as error:
        assert connection.state is AttemptState.ERROR
        return "F", error.code, error.reason
    match event:
        case Rejected():
            return "E", event.code, None
        case Dropped():
            return "D", event.code, None
        case _:
            return "accepted", type(event).__name__, None


def id_of(bad: BadLine) -> str:
    return bad.name


def test_the_table_has_forty_kinds_with_every_reason() -> None:
    assert len({bad.name for bad in BAD_LINES}) == len(BAD_LINES) >= 40


@pytest.mark.parametrize("bad", BAD_LINES, ids=id_of)
def test_a_bad_line_gets_what_is_documented(bad: BadLine) -> None:
    connection = started()

    connection.receive_data(bad.data)

    assert outcome(connection) == (bad.kind, bad.code, bad.reason)


@pytest.mark.parametrize("bad", BAD_LINES, ids=id_of)
def test_a_good_line_before_a_bad_one_is_served(bad: BadLine) -> None:
    connection = started()

    connection.receive_data(GOOD + bad.data + GOOD)

    assert isinstance(connection.next_event(), Event)
    assert outcome(connection) == (bad.kind, bad.code, bad.reason)
    if bad.kind == "F":
        assert outcome(connection) == (bad.kind, bad.code, bad.reason)
    else:
        assert isinstance(connection.next_event(), Event)
        assert connection.next_event() is NEED_DATA


@pytest.mark.parametrize("bad", BAD_LINES, ids=id_of)
def test_what_a_bad_line_says_is_never_repeated(bad: BadLine) -> None:
    marked = bad.data.replace(b"hello", b"IGNORE-PREVIOUS").replace(b"extra", b"IGNORE-PREVIOUS")
    connection = started()

    connection.receive_data(marked)

    if bad.kind == "F":
        with pytest.raises(RemoteProtocolError) as caught:
            connection.next_event()
        assert "IGNORE" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None or bad.code == "frame_too_large"
    else:
        assert "IGNORE" not in repr(connection.next_event())


@pytest.mark.parametrize("bad", [bad for bad in BAD_LINES if len(bad.data) < 400], ids=id_of)
def test_where_a_line_is_cut_makes_no_difference(bad: BadLine) -> None:
    data = GOOD + bad.data
    for cut in range(1, len(data)):
        connection = started()
        connection.receive_data(data[:cut])
        connection.receive_data(data[cut:])

        assert isinstance(connection.next_event(), Event)
        assert outcome(connection) == (bad.kind, bad.code, bad.reason)


def test_a_bad_line_can_come_a_byte_at_a_time() -> None:
    for bad in BAD_LINES:
        if len(bad.data) > 400:
            continue
        connection = started()
        for byte in GOOD + bad.data:
            connection.receive_data(bytes([byte]))

        assert isinstance(connection.next_event(), Event)
        assert outcome(connection) == (bad.kind, bad.code, bad.reason)
