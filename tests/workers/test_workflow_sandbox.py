from waystation.kernel.value import Value
from waystation.workers.sandbox import create_sandboxed_runner


def test_no_workflow_task_compiles_a_validator() -> None:
    class UnusedValue(Value):
        name: str

    assert not UnusedValue.__pydantic_complete__
    create_sandboxed_runner()
    assert UnusedValue.__pydantic_complete__
