"""protocol.md 3.9 in a real sandbox: what each violation gets, and what it leaves."""

from typing import Any

import pytest

from protocol import records
from tests.attempts.steps import do, raw, read
from tests.protocol.bad_lines import BAD_LINES

pytestmark = pytest.mark.xdist_group("engine")

LINES = {line.name: line for line in BAD_LINES}
#: One of each kind of check; all of them run against the conversation without an engine.
FATAL = (
    "a log line",
    "a key twice, deep",
    "version 2",
    "tool.response",
    "request id with LF",
    "inference over 8 MiB",
)


@pytest.mark.parametrize("name", FATAL)
async def test_a_fatal_line_ends_the_attempt_and_the_frame_before_it_is_served(
    puppet: Any, name: str
) -> None:
    line = LINES[name]

    played = await puppet([read("r0", "value.txt"), raw(line.data), do("cancel"), do("end")])

    assert played.result.outcome == "protocol_error"
    assert played.answer("r0")["result"]["text"] == "1\n"
    assert played.cancel["reason"] == "protocol_violation"
    assert played.cancel["violation"]["code"] == line.code
    assert played.cancel["graceMs"] == 2000
    assert [(each.code, each.reason, each.fatal) for each in played.of(records.Violation)] == [
        (line.code, line.reason, True)
    ]
    assert played.document["violations"] == [line.code]
    assert played.said("end of input") == [""]
