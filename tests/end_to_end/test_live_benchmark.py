"""`make bench-live` in its smallest form: a checkout's commands against the scripted provider, to a report."""

from datetime import date

import pytest

from benchmarks.checkout import Checkout
from benchmarks.live.documents import make_documents
from benchmarks.live.figures import build_rows, compute_figures
from benchmarks.live.run import measure


@pytest.mark.timeout(600)
def test_a_small_task_is_recorded_from_its_plan_to_its_report() -> None:
    run = measure(Checkout("this"), make_documents(3, scale=0.1), ["--budget", "600000"], 500)
    assert (run.phase, run.grants, run.refusals) == ("done", 0, [])
    found = compute_figures(run, 600_000, date(2026, 11, 28))
    assert {call.role for call in run.calls} == {"plan", "research", "analysis", "writing", "review"}
    assert len({call.agent for call in run.calls if call.role == "research"}) == 3
    assert (found.cuts, found.errors) == (0, 0)
    assert found.thinking > 0
    assert found.documents > 1_000
    assert found.at_writer is not None
    assert 90_000 < found.at_writer < run.limit == 600_000
    assert len({row[0] for row in build_rows([found])}) == len(build_rows([found]))
