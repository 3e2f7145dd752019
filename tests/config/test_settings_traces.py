"""Whether spans are asked for, and where they go: OpenTelemetry's own variables say that."""

import json
import subprocess
import sys

import pytest

from waystation.cli.main import run
from waystation.config.settings import TraceTarget, resolve_trace_target
from waystation.kernel.errors import BadInput

ENDPOINT = "http://collector:4318"
SAID = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
ASKED = {
    "an endpoint": {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT},
    "an endpoint of traces": {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{ENDPOINT}/secret/v1/traces"},
    "with a password": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://ada:hush@collector:4318/?key=hush"},
    "said twice": {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_TRACES_EXPORTER": "otlp"},
    "by name of the protocol": {
        "OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
    },
}
OFF = {
    "nothing": {},
    "none": {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_TRACES_EXPORTER": "none"},
    "the SDK is off": {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_SDK_DISABLED": "True"},
    "a name alone": {"OTEL_SERVICE_NAME": "harbour"},
    "an empty endpoint": {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
    "of metrics": {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": ENDPOINT},
}
REFUSED = {
    "another exporter": {"OTEL_TRACES_EXPORTER": "zipkin"},
    "another protocol": {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    "no address": {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:hush"},
}
MISTAKEN = {
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": ("abc", "-1", "unset", "9" * 30),
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": ("4k",),
    "OTEL_SPAN_LINK_COUNT_LIMIT": ("1.5",),
    "OTEL_BSP_MAX_QUEUE_SIZE": ("-5", "0", "many"),
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": ("2049",),
    "OTEL_BSP_SCHEDULE_DELAY": ("soon",),
    "OTEL_EXPORTER_OTLP_TIMEOUT": ("abc", "-1", "0", "nan", "inf"),
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": ("abc",),
    "OTEL_EXPORTER_OTLP_COMPRESSION": ("brotli",),
    "OTEL_EXPORTER_OTLP_CERTIFICATE": ("/nonexist/ca.pem",),
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY": ("/nonexist/key.pem",),
    "OTEL_TRACES_SAMPLER": ("bogus",),
}
MEANT = {
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": " 64 ",
    "OTEL_BSP_MAX_QUEUE_SIZE": "512",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "2.5",
    "OTEL_EXPORTER_OTLP_COMPRESSION": "GZIP",
    "OTEL_EXPORTER_OTLP_CERTIFICATE": __file__,
    "OTEL_TRACES_SAMPLER": "TraceIdRatio",
    "OTEL_TRACES_SAMPLER_ARG": "0.25",
}
WORKER = (
    "import sys, waystation.workers.wiring, waystation.workers.activity_deps, waystation.cli.main; print(*sys.modules)"
)


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    for given in (*ASKED.values(), *OFF.values(), *REFUSED.values(), MISTAKEN, MEANT):
        for name in given:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv(SAID, raising=False)


def give(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("given", ASKED.values(), ids=ASKED)
def test_spans_are_asked_for_by_the_standard_variables(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    give(monkeypatch, given)
    assert resolve_trace_target() == TraceTarget("http://collector:4318", include_content=False)


def test_an_exporter_without_an_endpoint_is_the_one_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    assert resolve_trace_target() == TraceTarget("http://localhost:4318", include_content=False)


@pytest.mark.parametrize("given", OFF.values(), ids=OFF)
def test_without_being_asked_nothing_is_sent(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    give(monkeypatch, given)
    assert resolve_trace_target() is None


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_done_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> None:
    give(monkeypatch, given)
    with pytest.raises(BadInput, match="OTEL_") as refused:
        resolve_trace_target()
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_an_address_that_cannot_be_used_is_refused_by_the_variable_that_has_it(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    give(monkeypatch, {name: "ftp://hush"})
    with pytest.raises(BadInput, match=f"^{name}: it must be an http or https address"):
        resolve_trace_target()


@pytest.mark.parametrize("for_all", [{}, {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}])
def test_a_protocol_of_traces_alone_is_refused_by_its_own_name(
    monkeypatch: pytest.MonkeyPatch, for_all: dict[str, str]
) -> None:
    give(monkeypatch, {**ASKED["an endpoint"], **for_all, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"})
    with pytest.raises(BadInput) as refused:
        resolve_trace_target()
    assert str(refused.value) == "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: only `http/protobuf` is supported"


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in MISTAKEN.items() for value in values])
def test_what_the_sdk_would_end_for_or_pass_over_is_refused_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert resolve_trace_target() is None, "who sends no spans is not asked for these"
    give(monkeypatch, ASKED["an endpoint"])
    with pytest.raises(BadInput, match=rf"\A{name}\b"):
        resolve_trace_target()


@pytest.mark.parametrize("share", ["2", "-0.1", "half", "nan"])
def test_a_share_of_traces_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, share: str) -> None:
    give(monkeypatch, {**ASKED["an endpoint"], **MEANT, "OTEL_TRACES_SAMPLER_ARG": share})
    with pytest.raises(BadInput, match=r"\AOTEL_TRACES_SAMPLER_ARG: it must be a number from 0 to 1"):
        resolve_trace_target()


def test_a_queue_that_is_smaller_than_what_goes_at_once_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, {**ASKED["an endpoint"], "OTEL_BSP_MAX_QUEUE_SIZE": "100"})
    with pytest.raises(BadInput, match=r"OTEL_BSP_MAX_EXPORT_BATCH_SIZE .* must not exceed OTEL_BSP_MAX_QUEUE_SIZE"):
        resolve_trace_target()


def test_what_the_sdk_takes_is_taken_and_that_of_traces_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, {**ASKED["an endpoint"], **MEANT})
    assert resolve_trace_target() is not None
    give(monkeypatch, {"OTEL_EXPORTER_OTLP_TIMEOUT": "abc", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "5"})
    assert resolve_trace_target() is not None


@pytest.mark.parametrize(
    ("value", "said"), [("true", True), ("SPAN_ONLY", True), ("false", False), ("EVENT_ONLY", False)]
)
def test_words_go_out_only_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch, value: str, said: bool) -> None:
    give(monkeypatch, {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, SAID: value})
    target = resolve_trace_target()
    assert target is not None
    assert target.include_content is said


def test_a_process_that_is_not_asked_for_spans_loads_nothing_that_makes_them() -> None:
    """The API is loaded by the SDKs of models, and costs nothing without a provider."""
    done = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    ours = ("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.proto", "waystation.runtime.telemetry")
    assert [name for name in loaded if name.startswith((*ours, "temporalio.contrib.opentelemetry"))] == []


def test_the_doctor_says_whether_spans_go_out_and_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    def told() -> str:
        run(["doctor", "--json"])
        checks = json.loads(capsys.readouterr().out)
        return next(check["finding"] for check in checks if check["name"] == "traces")

    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path_factory.mktemp("home")))
    assert told() == "off; set OTEL_EXPORTER_OTLP_ENDPOINT on workers to enable traces"
    give(monkeypatch, {**ASKED["with a password"], "OTEL_EXPORTER_OTLP_HEADERS": "authorization=hush"})
    assert told() == "spans go to http://collector:4318 by OTLP, with no message content"
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "hush")
    assert told().startswith("OTEL_TRACES_SAMPLER: it must be one of always_off, ")
