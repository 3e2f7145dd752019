"""A budget in dollars, from the shell: it pauses at its end, is raised in dollars, and the bill adds up."""

from pathlib import Path
from typing import Any, cast

import pytest

from tests.end_to_end.shell import Shell, is_paused
from tests.end_to_end.survey_documents import BROAD_QUESTION, write_survey_documents

PRICES = """
[[price]]
model = "waystation-offline-1"
source = "a test"
rates = { input = 3, output = 15, cache_write = 3.75, cache_read = 0.3 }
"""


@pytest.mark.timeout(900)
def test_half_a_dollar_pauses_is_raised_by_a_quarter_and_the_bill_is_the_sum_of_the_charges(tmp_path: Path) -> None:
    documents, prices = write_survey_documents(tmp_path / "survey"), tmp_path / "prices.toml"
    prices.write_text(PRICES)
    shell = Shell(tmp_path / "home", {"WAYSTATION_OFFLINE": "true", "WAYSTATION_PRICES": str(prices)})
    assert shell.run("up").returncode == 0
    try:
        task = str(
            shell.run_json("submit", BROAD_QUESTION, "--docs", str(documents), "--budget", "$0.50", "--detach")[
                "task_id"
            ]
        )
        shell.wait_for_task(task, is_paused, 360, "the pause")
        shown = shell.run_json("show", task)
        assert 0 < shown["budget"]["spent"]["usd"] <= shown["budget"]["limit"]["usd"] == 0.5
        assert task in shell.run("approvals", "--verbose").stdout

        (request, *_) = [
            asked for asked in cast("list[dict[str, Any]]", shown["approvals"]) if asked["decision"] == "pending"
        ]
        assert request["requested"]["tokens"] == 0 < request["requested"]["usd"]
        approved = shell.run("approve", task, "--request", request["request_id"], "--add", "$0.25")
        assert approved.returncode == 0, approved.stderr
        assert shell.run_json("show", task)["budget"]["limit"]["usd"] == 0.75

        bill = shell.run_json("cost", task)
        lines = cast("list[dict[str, Any]]", bill["lines"])
        assert bill["total"]["cost_usd"] == pytest.approx(sum(line["cost_usd"] for line in lines))
        shell.run("cancel", task)
        shell.wait_for_task(task, lambda seen: seen.phase.over, 240, "the end, by the cancellation or just before it")
        assert shell.run_json("cost", task)["total"]["cost_usd"] == shell.total_cost_micro_usd() / 1_000_000
        assert shell.run_json("show", task)["budget"]["spent"]["usd"] <= 0.75
    finally:
        shell.run("down")
