"""`waystation doctor --model` at an endpoint in each of its guises: what it prints, what it keeps, what follows."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import JsonValue

from tests.end_to_end.messages_server import ChatWithGaps, ServerWithGaps, run_server
from waystation.cli.main import run
from waystation.config.settings import Settings
from waystation.context.transcript import Block, Text, Thinking, ToolUse
from waystation.kernel.errors import (
    ContentFilterError,
    InvalidReplyError,
    ModelError,
    ModelRejected,
    ModelUnavailable,
    SpendingLimitReached,
)
from waystation.models.endpoints import UNKNOWN_CAPABILITIES, build_model_endpoint
from waystation.models.probe import ProbeRunner
from waystation.testing.doubles import ScriptedModel, make_scripted_response
from waystation.testing.messages_server import EndpointGap, build_error_response

MODEL = "harbour-1"
FITTING = {
    "streams": True,
    "tools": True,
    "forces_tools": True,
    "parallel_calls": True,
    "reports_usage": True,
    "caches": True,
    "counts": True,
}
CHATS = {**FITTING, "caches": None, "counts": False}
"""The same of chat completions."""
GUISES: dict[EndpointGap, dict[str, JsonValue]] = {
    "no count": {"counts": False},
    "no usage": {"reports_usage": False, "caches": None},
    "no cache fields": {"caches": None},
    "no cache marks": {"caches": False},
    "no tools": {"tools": False, "forces_tools": None, "parallel_calls": None},
    "no forced choice": {"forces_tools": False},
    "no parallel calls": {"parallel_calls": False},
    "another model": {"answers_as": "another-model"},
    "small window": {"caches": None, "names_overflow": True},
}
"""What each changes of a row where everything fits."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key-for-tests")
    return tmp_path


def probed(monkeypatch: pytest.MonkeyPatch, gaps: frozenset[EndpointGap], *options: str) -> tuple[int, str]:
    """The exit code, and the endpoint's address."""
    with run_server(ServerWithGaps(0.0, gaps=gaps)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        return run(["doctor", "--model", MODEL, "--yes", *options]), server.url


@pytest.mark.parametrize("gap", [None, *GUISES])
def test_the_row_of_each_guise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], gap: EndpointGap | None
) -> None:
    code, url = probed(monkeypatch, frozenset({gap} if gap else ()), "--save", "--json")
    same_row(json.loads(capsys.readouterr().out), url, {**FITTING, **(GUISES[gap] if gap else {})}, MODEL)
    assert code == (1 if gap == "no tools" else 0)


@pytest.mark.parametrize(
    "gap", [None, "no usage", "no tools", "no forced choice", "no parallel calls", "another model"]
)
def test_the_row_of_each_guise_of_chat_completions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path, gap: EndpointGap | None
) -> None:
    with run_server(ChatWithGaps(0.0, gaps=frozenset({gap} if gap else ()))) as server:
        (home / "config.toml").write_text(f'[endpoints.chats]\nkind = "openai"\nbase_url = "{server.url}/v1"\n')
        code = run(["doctor", "--model", f"chats::{MODEL}", "--yes", "--save", "--json"])
    expected = {**CHATS, **(GUISES[gap] if gap else {}), "caches": None}
    same_row(json.loads(capsys.readouterr().out), f"{server.url}/v1", expected, f"chats::{MODEL}")
    assert code == (1 if gap == "no tools" else 0)


@pytest.mark.parametrize("auth", ["bearer", "x-api-key"])
def test_the_row_of_a_named_endpoint_is_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path, auth: str
) -> None:
    with (
        run_server(ServerWithGaps(0.0)) as other,
        run_server(ServerWithGaps(0.0, gaps=frozenset({"no count"}))) as server,
    ):
        monkeypatch.setenv("ANTHROPIC_BASE_URL", other.url)
        table = f'[endpoints.spare]\nkind = "compatible"\nbase_url = "{server.url}"\nauth = "{auth}"\n'
        (home / "config.toml").write_text(table)
        assert run(["doctor", "--model", f"spare::{MODEL}", "--yes", "--save", "--json"]) == 0
    expected = {**FITTING, "counts": False}
    same_row(json.loads(capsys.readouterr().out), server.url, expected, f"spare::{MODEL}")
    assert Settings().endpoint_registry.get_endpoint(MODEL).get_capabilities(MODEL) == UNKNOWN_CAPABILITIES
    assert other.counts == 0


def same_row(said: dict[str, Any], url: str, expected: Mapping[str, JsonValue], model: str) -> None:
    """That is told, and kept where a worker looks for it."""
    assert said["endpoint"] == url
    found = {name: value for name, value in said["capabilities"].items() if value not in (None, "")}
    assert found.pop("probed")
    assert found.pop("source") == "waystation doctor"
    assert found == {name: value for name, value in expected.items() if value is not None}
    assert (
        Settings().endpoint_registry.get_endpoint(model).get_capabilities(model).model_dump(mode="json")
        == said["capabilities"]
    )


def test_the_table_says_what_fits_what_is_worked_around_and_what_will_not_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gaps: frozenset[EndpointGap] = frozenset({"no count", "no forced choice", "another model"})
    assert probed(monkeypatch, gaps)[0] == 0
    said = capsys.readouterr()
    assert "calls to harbour-1" in said.err
    assert max(map(len, said.out.splitlines())) <= 80
    starts = {line[7:22].strip(): line[:7].strip() for line in said.out.splitlines()[1:-1] if line[:7].strip()}
    assert starts == {
        "streaming": "ok",
        "model": "around",
        "usage": "ok",
        "tools": "ok",
        "forced choice": "around",
        "parallel calls": "ok",
        "cache": "ok",
        "count": "around",
        "overflow": "--",
    }
    assert probed(monkeypatch, frozenset({"no tools"}))[0] == 1
    said = capsys.readouterr()
    assert "FAIL   tools" in said.out
    assert "This model cannot run tasks" in said.out


@pytest.mark.parametrize(
    ("gap", "cause"), [("a page", "answered with a web page"), ("no stop reason", "ended before it was complete")]
)
def test_what_is_no_whole_stream_will_not_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], gap: EndpointGap, cause: str
) -> None:
    assert probed(monkeypatch, frozenset({gap}))[0] == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "FAIL streaming" in said
    assert cause in said


@dataclass
class AwayForTools(ServerWithGaps):
    """Answers plain questions, and is away where tools come along: forced ones alone, or all."""

    status: int = 529
    forced_alone: bool = False

    def reply(self, path: str, headers: dict[str, str], body: bytes) -> httpx2.Response:
        asked = json.loads(body)
        away = "tool_choice" in asked if self.forced_alone else bool(asked.get("tools"))
        if away and not path.endswith("count_tokens"):
            return build_error_response(
                self.status, {429: "rate_limit_error", 529: "overloaded_error"}.get(self.status, "api_error")
            )
        return super().reply(path, headers, body)


class Resets(ServerWithGaps):
    """Breaks the connection in place of every reply."""

    def send(self, write: Callable[[bytes], object], reply: bytes) -> None:
        raise ConnectionResetError


@pytest.mark.parametrize("status", [429, 500, 529])
def test_a_passing_outage_is_no_fact_and_nothing_is_kept_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path, status: int
) -> None:
    with run_server(AwayForTools(0.0, status=status)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        assert run(["doctor", "--model", MODEL, "--yes", "--save"]) == 1
    said = capsys.readouterr()
    assert re.search(r"^--     tools  ", said.out, re.MULTILINE)
    assert "It is not known whether this model can run tasks" in said.out
    assert "Nothing was saved" in said.err
    assert not (home / "config.toml").exists()


def test_an_outage_where_a_tool_is_forced_leaves_that_open_and_the_rest_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with run_server(AwayForTools(0.0, forced_alone=True)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        assert run(["doctor", "--model", MODEL, "--yes", "--save", "--json"]) == 0
    expected = {name: value for name, value in FITTING.items() if name != "forces_tools"}
    same_row(json.loads(capsys.readouterr().out), server.url, expected, MODEL)


def test_connections_that_break_are_no_fact_about_streams(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    with run_server(Resets(0.0)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        assert run(["doctor", "--model", MODEL, "--yes", "--save"]) != 0
    assert "the connection to the provider failed" in capsys.readouterr().err
    assert not (home / "config.toml").exists()


def test_a_model_is_asked_where_the_settings_have_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    with run_server(ServerWithGaps(0.0)) as other, run_server(ServerWithGaps(0.0)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", other.url)
        table = f'[endpoints.spare]\nkind = "compatible"\nbase_url = "{server.url}"\n'
        (home / "config.toml").write_text(f'endpoint = "spare"\n\n{table}')
        assert run(["doctor", "--model", MODEL, "--yes", "--save", "--json"]) == 0
        assert (server.counts, other.counts) == (1, 0)
    same_row(json.loads(capsys.readouterr().out), server.url, FITTING, f"spare::{MODEL}")


CALL = ToolUse(id="t1", name="no_such_tool", input={})
FINE = make_scripted_response(Text(text="ready."))


@pytest.mark.parametrize(
    ("blocks", "finding"),
    [
        ((CALL,), "a call of a tool that the request did not offer"),
        ((), "an empty reply"),
        ((Thinking(thinking="Hm.", signature="x"),), "only thinking, without a call of the tool"),
        ((Text(text="Four metres."),), "only text, without a call of the tool"),
    ],
)
async def test_what_comes_in_the_place_of_a_call_is_told_apart(blocks: tuple[Block, ...], finding: str) -> None:
    chat = ScriptedModel([FINE, make_scripted_response(*blocks), FINE, FINE])
    lines, row = await ProbeRunner(dict.fromkeys([(True, True)], chat), MODEL).run()
    assert [line.finding for line in lines if line.name == "tools"] == [finding]
    assert row.tools is False


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (ModelUnavailable("reset"), None),
        (SpendingLimitReached("no money"), None),
        (ContentFilterError("blocked"), None),
        (InvalidReplyError("arguments are no JSON"), False),
        (ModelRejected("no tools here"), False),
    ],
)
async def test_what_is_malformed_or_refused_is_a_fact_and_what_passes_is_none(
    error: ModelError, kept: bool | None
) -> None:
    chat = ScriptedModel([FINE, error, FINE, FINE, error])
    lines, row = await ProbeRunner(dict.fromkeys([(True, True)], chat), MODEL).run(overflow=10)
    assert row.tools is kept
    assert row.names_overflow is kept
    fits = {line.name: line.fit for line in lines}
    assert fits["tools"] == ("not asked" if kept is None else "will not work")
    assert fits["overflow"] == ("not asked" if kept is None else "worked around")


def test_a_request_that_is_longer_than_the_window_is_sent_only_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert probed(monkeypatch, frozenset(), "--overflow", "--json")[0] == 0
    said = capsys.readouterr()
    assert "200,000 more" in said.err
    assert json.loads(said.out)["capabilities"]["names_overflow"] is True


def test_nothing_is_asked_of_an_endpoint_without_a_yes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with run_server(ServerWithGaps(0.0)) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        assert run(["doctor", "--model", MODEL]) == 2
        assert server.counts == 0
    said = capsys.readouterr()
    assert re.search(r"about 9 calls to .*, with about [\d,]+ tokens\. The calls count against no budget\.", said.err)
    assert "--yes" in said.err
    assert not said.out


def test_saving_again_replaces_the_row_and_leaves_the_rest_of_the_file_alone(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    config = home / "config.toml"
    config.write_text('# ours\nbudget = "50k"\n\n[roles.writing]\neffort = "high"\n')
    with run_server(ServerWithGaps(0.0, gaps=frozenset({"no tools"}))) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        run(["doctor", "--model", MODEL, "--yes", "--save"])
        assert (
            build_model_endpoint(server.url, Settings().endpoint_registry.capabilities).get_capabilities(MODEL).tools
            is False
        )
        server.gaps = frozenset()
        run(["doctor", "--model", MODEL, "--yes", "--save"])
    kept = config.read_text()
    assert kept.startswith('# ours\nbudget = "50k"\n\n[roles.writing]\neffort = "high"\n')
    assert kept.count(f'"{MODEL}"') == 1
    settings = Settings()
    assert (
        build_model_endpoint(server.url, settings.endpoint_registry.capabilities).get_capabilities(MODEL).tools is True
    )
    assert (
        build_model_endpoint(server.url, settings.endpoint_registry.capabilities).get_capabilities("another")
        == UNKNOWN_CAPABILITIES
    )
    assert settings.roles["writing"].effort == "high"


def test_a_config_file_with_endpoints_in_another_form_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    config = home / "config.toml"
    config.write_text("endpoints = {}\n")
    assert probed(monkeypatch, frozenset(), "--save")[0] == 2
    assert "write endpoints in that file as tables with headings like [endpoints.…]" in capsys.readouterr().err
    assert config.read_text() == "endpoints = {}\n"
