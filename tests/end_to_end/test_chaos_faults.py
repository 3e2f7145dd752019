"""Budgets while calls of the model fail and processes are killed: a short run of the harness with both."""

from pathlib import Path

import pytest

from benchmarks.chaos.run import ChaosConfig, run_chaos
from benchmarks.chaos.table import faults, table

SEED = 1885


@pytest.mark.timeout(1_800)
async def test_budgets_are_exact_while_one_call_in_ten_fails_and_everything_is_killed(tmp_path: Path) -> None:
    order = ChaosConfig(kills=1, seed=SEED, tasks=1, home=tmp_path / "home", fault_share=0.1)
    outcome = await run_chaos(order, print)
    assert faults(outcome.verdict) == [], table(order, outcome)
    assert outcome.refused + outcome.cut > 0
