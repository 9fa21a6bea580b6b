"""Text before the first frame: a violation, unless the image asked for a quarantine."""

import pytest

from protocol.connection import NEED_DATA, BrokerConnection, Dropped
from protocol.errors import RemoteProtocolError
from protocol.limits import MAX_NOISE_BYTES, MAX_NOISE_LINES, Limits
from protocol.messages import Event
from tests.protocol.frames import task_start

FRAME = b'{"v":1,"type":"event","kind":"agent.progress","data":{"phase":"up"}}\n'


def started(*, quarantine: bool) -> BrokerConnection:
    connection = BrokerConnection(Limits(), quarantine_noise=quarantine)
    connection.send(task_start())
    return connection


def test_noise_is_a_violation_by_default() -> None:
    connection = started(quarantine=False)
    connection.receive_data(b"Welcome\n" + FRAME)

    with pytest.raises(RemoteProtocolError) as violation:
        connection.next_event()

    assert (violation.value.code, violation.value.reason) == ("malformed_frame", "not_json")


def test_quarantined_noise_is_dropped_and_the_first_frame_is_served() -> None:
    connection = started(quarantine=True)
    connection.receive_data(b"Welcome\n\xff\xfe\n" + FRAME)

    assert connection.next_event() == Dropped("stdout_noise")
    assert connection.next_event() == Dropped("stdout_noise")
    assert isinstance(connection.next_event(), Event)
    assert connection.next_event() is NEED_DATA
    assert connection.invalid == 0


@pytest.mark.parametrize("line", [b"noise\n", b'{"v":1}\n', b"{ not json\n"])
def test_after_the_first_frame_nothing_is_quarantined(line: bytes) -> None:
    connection = started(quarantine=True)
    connection.receive_data(FRAME + line)
    assert isinstance(connection.next_event(), Event)

    with pytest.raises(RemoteProtocolError):
        connection.next_event()


def test_a_line_that_begins_like_a_frame_is_not_noise() -> None:
    connection = started(quarantine=True)
    connection.receive_data(b"{ not json\n")

    with pytest.raises(RemoteProtocolError) as violation:
        connection.next_event()

    assert violation.value.code == "malformed_frame"


@pytest.mark.parametrize(
    ("noise", "dropped"),
    [
        (b"x\n" * MAX_NOISE_LINES, MAX_NOISE_LINES),
        (b"x" * (MAX_NOISE_BYTES - 1) + b"\n", 1),
    ],
)
def test_noise_up_to_its_bound_is_dropped_and_one_more_line_is_fatal(
    noise: bytes, dropped: int
) -> None:
    connection = started(quarantine=True)
    connection.receive_data(noise)
    for _ in range(dropped):
        assert connection.next_event() == Dropped("stdout_noise")
    assert connection.next_event() is NEED_DATA

    connection.receive_data(b"x\n")
    with pytest.raises(RemoteProtocolError) as violation:
        connection.next_event()

    assert (violation.value.code, violation.value.reason) == ("malformed_frame", "not_json")
