import pytest

from tests.crew import CREW_PLAN
from waystation.cli.tasks import as_yaml, read_plan
from waystation.domain.errors import BadInput


def test_a_plan_that_is_printed_is_read_as_the_same_plan() -> None:
    assert read_plan(as_yaml(CREW_PLAN)) == CREW_PLAN


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("needs: []", "needs: [write]", "steps need each other in a circle"),
        ("role: analysis", "role: cooking", "steps.2.role"),
        ("steps:", "steps: [", "no YAML"),
        ("role: writing", "role: analysis", "the role writing"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused_with_what_is_wrong(before: str, after: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        read_plan(as_yaml(CREW_PLAN).replace(before, after))
