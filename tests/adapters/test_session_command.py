"""`waystation session set` against a real server."""

import json
from pathlib import Path

import pytest

from waystation.adapters.temporal.connect import Target
from waystation.cli.main import run


@pytest.mark.parametrize(
    ("budget", "tokens", "usd"), [("2M+$50", 2_000_000, 50.0), ("$1,250.50", None, 1250.5), ("unlimited", None, None)]
)
def test_a_limit_that_was_set_is_printed_for_programs(
    temporal_server: Target,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    budget: str,
    tokens: int | None,
    usd: float | None,
) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    monkeypatch.setenv("TEMPORAL_ADDRESS", str(temporal_server.address))
    assert run(["session", "set", "harbours", "--budget", budget, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"session": "harbours", "limit_tokens": tokens, "limit_usd": usd}
