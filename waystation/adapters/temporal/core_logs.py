"""What the SDK's core logs, for workers: through Python's logging, without colours, and an outage in one line a minute.

Each poller would tell of each of its retries; programs that people look at take `connect.quiet_runtime` instead.
"""

import logging
from functools import cache

from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

SECONDS_BETWEEN = 60.0
AWAY = "the Temporal server does not answer; it is tried again, and work goes on when it does"
_RETRIES = "temporalio_client::retry"


class OutageFilter(logging.Filter):
    """Lets one record about retries through in a minute, and words it; all others as they are."""

    _told = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """See base class."""
        if not record.name.endswith(_RETRIES):
            return True
        if record.created < self._told + SECONDS_BETWEEN:
            return False
        self._told, record.msg = record.created, AWAY
        return True


@cache
def plain_logging() -> LoggingConfig:
    """Warnings and errors go to the logger `temporalio.core`."""
    logger = logging.getLogger("temporalio.core")
    logger.addFilter(OutageFilter())
    forwarded = LogForwardingConfig(logger=logger, prepend_target_on_message=False, append_log_fields_to_message=False)
    return LoggingConfig(filter=TelemetryFilter(core_level="WARN", other_level="ERROR"), forwarding=forwarded)


@cache
def worker_runtime() -> Runtime:
    """For workers without metrics."""
    return Runtime(telemetry=TelemetryConfig(logging=plain_logging()))
