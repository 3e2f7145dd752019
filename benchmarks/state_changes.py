"""What one change of a task's state costs: `python -m benchmarks.state_changes [ROUNDS]`.

A leg of one agent ends, and the workflow reads what it shows as search attributes. Subagents have 40 compactions each.
The baseline is to validate the whole state once, as loading it does. Times are processor time of this thread, medians.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence

from benchmarks.budgets.tables import describe_machine, print_table
from tests.support.large_task_states import change_state, list_validated_values, make_large_state
from waystation.tasks.state import TaskState

AGENTS = (5, 60)


def measure_milliseconds(work: Callable[[], object], rounds: int) -> float:
    """Return the median."""
    times = list[float]()
    for _ in range(rounds):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return statistics.median(times) * 1e3


def main(rounds: int) -> None:
    """Print the table."""
    rows = list[Sequence[object]]()
    for agents in AGENTS:
        state = make_large_state(agents)
        stored = state.model_dump(mode="json")
        change = measure_milliseconds(lambda state=state: change_state(state), rounds)
        whole = measure_milliseconds(lambda stored=stored: TaskState.model_validate(stored), rounds)
        made = len(list_validated_values(lambda state=state: change_state(state)))
        rows.append((agents, f"{change:.2f} ms", made, f"{whole:.2f} ms", f"{change / whole:.3f}"))
    head = ("agents", "a change", "values made and validated", "baseline: validate the state", "ratio")
    print_table(f"Changes of a task's state ({describe_machine()})", head, rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 300)
