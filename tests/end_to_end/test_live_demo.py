"""`demo --live` against a model that costs: it asks first, stops at fifty cents, and the store's charges agree."""

import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.messages_server import run_messages_server
from tests.end_to_end.shell import ROOT, WAYSTATION, Shell
from tests.support.prices import PRICES, render_price_file

CAP = 500_000
"""Millionths of a dollar."""


def typed(shell: Shell, answer: bytes, *arguments: str) -> tuple[int, str]:
    """A command at a terminal, where somebody types an answer beforehand; its exit code, and all that it said."""
    master, terminal = pty.openpty()
    os.write(master, answer)
    process = subprocess.Popen(
        [*WAYSTATION, *arguments], cwd=ROOT, env=shell.environment, stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    said = b""
    try:
        while more := os.read(master, 65_536):
            said += more
    except OSError:  # Linux says so where the last one at the terminal has gone
        pass
    os.close(master)
    return process.wait(60), said.decode(errors="replace")


@pytest.mark.timeout(600)
def test_the_live_demo_asks_first_and_stops_at_half_a_dollar(tmp_path: Path) -> None:
    with run_messages_server(delay=0) as model:
        prices = (
            tmp_path / "prices.toml"
        )  # at another endpoint than the provider's own, somebody has to write them down
        prices.write_text(render_price_file(price.replace(source="a test") for price in PRICES))
        key = {"ANTHROPIC_API_KEY": "a-key-for-tests", "ANTHROPIC_BASE_URL": model.url}
        shell = Shell(tmp_path / "home", {**key, "WAYSTATION_PRICES": str(prices)})
        unasked = shell.run("demo", "--live")
        assert unasked.returncode == 2
        assert "there is no terminal to ask for confirmation: add --yes" in unasked.stderr
        code, said = typed(shell, b"n\n", "demo", "--live")
        assert code == 2
        assert "at most $0.50, with claude-" in said
        assert "not confirmed; nothing was sent" in said
        assert model.answered == []

        log = tmp_path / "demo.log"
        demo = shell.start("demo", "--live", "--yes", log=log)
        assert demo.wait(540) in {0, 1}, log.read_text()[-3000:]
    assert model.answered
    assert "and the demo may grant no more: " in log.read_text()
    assert CAP // 2 < shell.total_cost_micro_usd() <= CAP
