"""`eval` with a model behind the provider's protocol: what it answered is scored, and what that cost is the store's."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.messages_server import run_messages_server
from tests.end_to_end.shell import Shell
from tests.support.prices import PRICES, render_price_file

QUESTIONS = """
name: harbour
questions:
  - id: depth
    question: How deep is the water over the bar at low tide?
    documents: [pilot.md]
    facts: ["2.4 metres"]
    cites: [pilot.md]
    never: ["9 metres"]
  - id: pilots
    question: On which channel do the pilots of the harbour answer?
    documents: [pilot.md]
    facts: ["channel 12"]
    cites: [pilot.md]
"""
PILOT = """# Pilotage

The water over the bar is 2.4 metres deep at low tide.
The pilots of the harbour answer on channel 12.
Ships of more than 40 metres take a pilot.
"""


@pytest.mark.timeout(600)
def test_answers_of_a_model_are_scored_and_cost_what_the_store_says(tmp_path: Path) -> None:
    (tmp_path / "pilot.md").write_text(PILOT)
    questions = tmp_path / "harbour.yaml"
    questions.write_text(QUESTIONS)
    prices = tmp_path / "prices.toml"
    prices.write_text(render_price_file(price.replace(source="a test") for price in PRICES))
    with run_messages_server(delay=0) as model:
        key = {"ANTHROPIC_API_KEY": "a-key-for-tests", "ANTHROPIC_BASE_URL": model.url}
        shell = Shell(tmp_path / "home", {**key, "WAYSTATION_PRICES": str(prices)})
        page, kept = tmp_path / "eval.html", tmp_path / "eval.json"
        done = shell.run("eval", str(questions), "--budget", "300k", "--keep", str(kept), "--html", str(page), "--json")
        assert done.returncode == 0, done.stderr[-2_000:]
        charged = shell.total_cost_micro_usd()
    (found,) = json.loads(done.stdout)["evaluations"]
    assert model.answered
    assert found["model"].startswith("claude-")
    assert {answer["id"]: answer["phase"] for answer in found["answers"]} == {"depth": "done", "pilots": "done"}
    assert [answer["scores"]["facts"] for answer in found["answers"]] == [1.0, 1.0]
    assert [answer["scores"]["evidence"] for answer in found["answers"]] == [1.0, 1.0]
    assert sum(answer["micro_usd"] for answer in found["answers"]) == charged > 0
    assert found["model"] in page.read_text()
    assert json.loads(kept.read_text())["answers"] == found["answers"]
