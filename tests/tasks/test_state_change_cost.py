"""What one change of a task's state costs, in values that are validated: the same on every machine."""

from tests.support.large_task_states import change_state, list_validated_values, make_large_state


def test_a_change_validates_as_many_values_with_sixty_agents_as_with_five() -> None:
    """No other agent, and no past compaction, is validated again because one agent changes."""
    few, many = make_large_state(5), make_large_state(60)
    assert len(many.runs) == 60
    made = list_validated_values(lambda: change_state(many))
    assert made == list_validated_values(lambda: change_state(few))
    assert "Usage" in made
    assert not {"AgentRun", "CompactionOutcome", "TaskState"} & set(made)
