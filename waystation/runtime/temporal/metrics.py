"""Metrics and logs of a worker: Prometheus metrics of the Temporal SDK and ours, at one endpoint, and the logs of the
SDK's core through Python's logging.

Labels are names of models, kinds and statuses, never ids, so that their number stays small. The core's log has no
colours, and one line a minute during an outage: each poller would log each of its retries. Interactive programs use
`connect.get_quiet_runtime` instead.
"""

import logging
from functools import cache

from temporalio.common import MetricMeter
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)

from waystation.context.compaction import CompactionOutcome
from waystation.context.transcript import Charge
from waystation.kernel.errors import BadInput, ModelError, ModelUnavailable
from waystation.models.ports import CallKind
from waystation.privacy.policy import TextDestination

SECONDS_BETWEEN = 60.0
SERVER_AWAY_MESSAGE = (
    "the Temporal server does not answer. The worker tries again, and continues when the server answers"
)
_RETRIES = "temporalio_client::retry"


class OutageFilter(logging.Filter):
    """Passes one record a minute about retries, reworded; all others unchanged."""

    _told = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """See base class."""
        if not record.name.endswith(_RETRIES):
            return True
        if record.created < self._told + SECONDS_BETWEEN:
            return False
        self._told, record.msg = record.created, SERVER_AWAY_MESSAGE
        return True


@cache
def get_core_logging_config() -> LoggingConfig:
    """Return the configuration that sends warnings and errors to the logger `temporalio.core`."""
    logger = logging.getLogger("temporalio.core")
    logger.addFilter(OutageFilter())
    forwarded = LogForwardingConfig(logger=logger, prepend_target_on_message=False, append_log_fields_to_message=False)
    return LoggingConfig(filter=TelemetryFilter(core_level="WARN", other_level="ERROR"), forwarding=forwarded)


@cache
def get_worker_runtime() -> Runtime:
    """Return the runtime of workers without metrics."""
    return Runtime(telemetry=TelemetryConfig(logging=get_core_logging_config()))


def create_prometheus_runtime(host: str, port: int) -> Runtime:
    """Create a runtime that serves `/metrics` while it lives. Clients must be connected with it.

    Args:
        host: An IP address.
        port: TCP port.

    Raises:
        BadInput: The address cannot be bound.
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    config = PrometheusConfig(
        bind_address=address, counters_total_suffix=True, unit_suffix=True, durations_as_seconds=True
    )
    try:
        return Runtime(telemetry=TelemetryConfig(logging=get_core_logging_config(), metrics=config))
    except ValueError as error:
        raise BadInput(f"metrics cannot be served at {address}: {error}") from error


class TemporalMeter:
    """The port `Meter` on the SDK's meter. That of a runtime without metrics counts nothing."""

    def __init__(self, meter: MetricMeter) -> None:
        self._tokens = meter.create_counter("waystation_tokens", "Tokens of answered model calls")
        self._cost = meter.create_counter("waystation_cost_microdollars", "List price of answered calls, USD * 1e-6")
        self._unpriced = meter.create_counter(
            "waystation_unpriced_calls", "Answered calls of models that have no known price"
        )
        self._calls = meter.create_counter("waystation_model_calls", "Model calls")
        self._waits = meter.create_counter("waystation_waited_calls", "Model calls that waited for a rate limit")
        self._waited = meter.create_counter(
            "waystation_waited_milliseconds", "Time that model calls waited for a rate limit"
        )
        self._searches = meter.create_counter("waystation_web_searches", "Web searches by the provider")
        self._compactions = meter.create_counter("waystation_compactions", "Compactions of agents' contexts")
        self._saved = meter.create_counter("waystation_compaction_saved_tokens", "Tokens by which requests shrank")
        self._redactions = meter.create_counter("waystation_redactions", "Private values replaced")
        self._not_sampled = meter.create_counter("waystation_unread_samples", "Samples of a gauge that failed")
        self._outbox = meter.create_gauge("waystation_outbox_passages", "Passages that wait to be written to memory")
        self._limits = meter.create_gauge("waystation_rate_limit", "Limit of a model per minute")
        self._remaining = meter.create_gauge("waystation_rate_limit_remaining", "Remaining part of a limit")
        self._waiting = meter.create_gauge("waystation_waiting_calls", "Model calls that wait for a rate limit")
        self._paused = meter.create_gauge("waystation_paused_tasks", "Running tasks that wait for an answer")

    def record_model_reply(self, charge: Charge) -> None:
        """See `Meter`."""
        labels = {"model": charge.model, "call": charge.kind}
        self._calls.add(1, {**labels, "outcome": "answered"})
        used = charge.usage
        kinds = {
            "input": used.input,
            "cache_write": used.cache_write,
            "cache_read": used.cache_read,
            "output": used.output,
        }
        for kind, tokens in kinds.items():
            self._tokens.add(tokens, {**labels, "kind": kind})
        self._searches.add(used.searches, {"model": charge.model})
        if charge.cost_micro_usd is None:
            self._unpriced.add(1, labels)
        else:
            self._cost.add(charge.cost_micro_usd, labels)

    def record_model_failure(self, kind: CallKind, model: str, error: ModelError) -> None:
        """See `Meter`."""
        outcome = "unavailable" if isinstance(error, ModelUnavailable) else "rejected"
        self._calls.add(1, {"model": model, "call": kind, "outcome": outcome})

    def record_model_wait(self, model: str, seconds: float) -> None:
        """See `Meter`."""
        self._waits.add(1, {"model": model})
        self._waited.add(round(seconds * 1000), {"model": model})

    def record_compaction(self, outcome: CompactionOutcome) -> None:
        """See `Meter`."""
        self._compactions.add(1, {"status": outcome.status.value})
        if outcome.status.made_room:
            self._saved.add(max(0, outcome.tokens_before - outcome.tokens_after))

    def record_redactions(self, destination: TextDestination, spans: int) -> None:
        """See `Meter`."""
        self._redactions.add(spans, {"place": destination.value})

    def set_pending_passages(self, count: int) -> None:
        """See `Meter`."""
        self._outbox.set(count)

    def set_paused_tasks(self, count: int) -> None:
        """See `Meter`."""
        self._paused.set(count)

    def set_rate_limit(self, model: str, kind: str, limit: float, remaining: float) -> None:
        """See `Meter`."""
        labels = {"model": model, "kind": kind}
        self._limits.set(round(limit), labels)
        # A gauge takes no negative number; a debt is nothing left.
        self._remaining.set(max(0, round(remaining)), labels)

    def set_waiting_calls(self, count: int) -> None:
        """See `Meter`."""
        self._waiting.set(count)

    def record_sampling_failure(self, gauge: str) -> None:
        """See `Meter`."""
        self._not_sampled.add(1, {"gauge": gauge})
