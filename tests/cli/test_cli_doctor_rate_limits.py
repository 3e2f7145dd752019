"""What `waystation doctor` prints of the providers' rate limits that the workers of a store share."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from waystation.cli.main import run
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.models.ports import LimitScope
from waystation.models.rate_limits import LeaseRequest, LimitReport, RateLimitAmount, RateLimits, Refusal
from waystation.runtime.sql_store import SqlStore

URL = "https://api.anthropic.com"
SCOPE = LimitScope(URL, "0123456789abcdef", "claude-sonnet-5-5")
CALL = RateLimitAmount(requests=1)
SONNET = "claude-sonnet-5-5 at https://api.anthropic.com (account 012345): "


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    return tmp_path


def check(home: Path, capsys: pytest.CaptureFixture[str], *requests: LeaseRequest) -> str:
    """Return the line about rate limits after workers have sent these requests; empty if there is none."""

    async def send(sent: Sequence[LeaseRequest]) -> None:
        store = await SqlStore.open(Settings(home=home).database_url, utc_now)
        for request in sent:
            await store.build_limit_repository().acquire_lease(SCOPE, request)
        await store.aclose()

    asyncio.run(send(requests))
    run(["doctor"])
    lines = capsys.readouterr().out.replace("\n     ", " ").splitlines()
    return next((line for line in lines if "rate limits: " in line), "")


def test_limits_that_a_provider_has_named_are_printed_with_what_is_available(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learnt = LimitReport(limits=RateLimits(requests=60, input_tokens=30_000, output_tokens=6_000))
    assert check(home, capsys, LeaseRequest(worker="a", report=learnt)) == (
        f"ok   rate limits: {SONNET}60 requests, 30,000 input tokens, 6,000 output tokens a minute "
        "(available now: 10 requests, 5,000 input tokens, 1,000 output tokens); 0 calls waiting"
    )


def test_a_limit_of_the_config_file_is_printed_although_no_provider_has_named_one(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config.toml").write_text('[model_limits."claude-sonnet-5-5"]\nrequests = 12\n')
    assert check(home, capsys, LeaseRequest(worker="a")) == (
        f"ok   rate limits: {SONNET}12 requests a minute (available now: 2 requests); 0 calls waiting"
    )


def test_the_lower_one_of_a_named_and_a_configured_limit_is_printed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config.toml").write_text('[model_limits."claude-sonnet-5-5"]\nrequests = 600\n')
    learnt = LimitReport(limits=RateLimits(requests=60))
    assert f"{SONNET}60 requests a minute" in check(home, capsys, LeaseRequest(worker="a", report=learnt))


def test_an_unknown_limit_is_not_printed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(home, capsys, LeaseRequest(worker="a")) == ""


def test_an_exhausted_limit_is_printed_with_calls_that_wait_and_the_time_until_calls_are_accepted(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spent = LimitReport(limits=RateLimits(requests=1), remaining=RateLimits(requests=0))
    refused = LeaseRequest(worker="a", report=spent, refusal=Refusal(retry_after=50))
    line = check(home, capsys, refused, LeaseRequest(worker="a", head=CALL, wanted=CALL, waiting=1))
    start = f"--   rate limits: {SONNET}1 requests a minute (available now: 0 requests); 1 call waiting"
    assert line.startswith(f"{start}; the provider accepts no calls for the next ")
    seconds = int(line.removesuffix(" s").rsplit(" ", 1)[1])
    assert 0 < seconds <= 50


def test_a_provider_that_names_no_limit_and_refuses_is_printed_with_the_reset(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rate after the refusal was learnt from it, and grows."""
    refused = LeaseRequest(worker="a", refusal=Refusal(retry_after=50, per_minute=600))
    line = check(home, capsys, refused)
    assert line.startswith(f"--   rate limits: {SONNET}30")
    assert "; 0 calls waiting; the provider accepts no calls for the next " in line
