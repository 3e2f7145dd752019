"""What workers log of the SDK's core: an outage in one line a minute, everything else as it is."""

import logging

from waystation.runtime.temporal.metrics import SERVER_AWAY_MESSAGE, OutageFilter

RETRIES = "temporalio.core-sdk_core::temporalio_client::retry"


def told(outage: OutageFilter, name: str, message: str, created: float) -> str | None:
    record = logging.makeLogRecord({"name": name, "msg": message, "created": created})
    return record.getMessage() if outage.filter(record) else None


def test_an_outage_is_told_in_one_line_a_minute_and_other_warnings_as_they_are() -> None:
    outage = OutageFilter()
    polls = [told(outage, RETRIES, "gRPC call poll retried 6 times", second) for second in (0.0, 1.0, 59.0, 60.0, 61.0)]
    assert polls == [SERVER_AWAY_MESSAGE, None, None, SERVER_AWAY_MESSAGE, None]
    assert told(outage, "temporalio.core-sdk_core::worker", "a slot is leaking", 61.0) == "a slot is leaking"
