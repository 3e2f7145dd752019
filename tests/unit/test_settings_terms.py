import pytest
from pydantic import SecretStr

from waystation.domain.budget import Mode
from waystation.domain.models import OFFLINE_MODEL
from waystation.domain.task import TaskRequest
from waystation.settings import Settings
from waystation.terms import task_terms, warnings_about

WITH_KEY = SecretStr("sk-ant-1")


def asked(
    budget: int = 600_000, agent_budget: int = 100_000, mode: Mode = Mode.APPROVAL, window: int | None = None
) -> TaskRequest:
    return TaskRequest(
        question="What?", request_id="r", budget=budget, agent_budget=agent_budget, mode=mode, window=window
    )


@pytest.mark.parametrize(
    ("request_", "model", "window"),
    [
        pytest.param(asked(), "claude-sonnet-5-5", 50_000, id="half of the agent's budget"),
        pytest.param(asked(window=12_000), "claude-sonnet-5-5", 12_000, id="what was asked for"),
        pytest.param(asked(agent_budget=10_000_000), "claude-sonnet-5-5", 200_000, id="the cap"),
        pytest.param(
            asked(agent_budget=10_000_000),
            "claude-haiku-4-5",
            160_000,
            id="the model's window less 20,000 for the reply less a tenth",
        ),
        pytest.param(
            asked(agent_budget=10_000_000, window=900_000), "claude-haiku-4-5", 160_000, id="never over the model's"
        ),
    ],
)
def test_the_window_is_the_smallest_of_what_limits_it(request_: TaskRequest, model: str, window: int) -> None:
    agent = task_terms(request_, Settings(anthropic_api_key=WITH_KEY, agent_model=model)).agent
    assert agent.window == window


def test_a_context_is_full_at_three_quarters_and_is_compacted_to_half_of_that() -> None:
    agent = task_terms(asked(window=40_000), Settings()).agent
    assert (agent.trigger, agent.target) == (30_000, 15_000)


@pytest.mark.parametrize(("window", "max_output"), [(100_000, 8_000), (12_000, 3_000), (2_000, 500)])
def test_a_reply_is_at_most_a_quarter_of_the_window(window: int, max_output: int) -> None:
    assert task_terms(asked(window=window, agent_budget=400_000), Settings()).agent.max_output == max_output


def test_without_a_key_no_model_of_a_provider_is_named() -> None:
    terms = task_terms(asked(), Settings())
    assert terms.offline
    assert {terms.agent.model, terms.agent.condense_model, terms.plan_model} == {OFFLINE_MODEL}


def test_usual_terms_are_not_warned_about() -> None:
    assert warnings_about(task_terms(asked(), Settings())) == ()


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (asked(budget=100_000), "covers fewer than 5 turns with a full window of 50,000"),
        (asked(budget=10_000, agent_budget=2_000, mode=Mode.HARD), "In mode hard, 10,000 tokens"),
        (asked(budget=90_000), "One agent may spend 100,000 tokens, but the whole task has only 90,000"),
    ],
)
def test_terms_that_will_disappoint_are_warned_about(request_: TaskRequest, words: str) -> None:
    assert words in " ".join(warnings_about(task_terms(request_, Settings())))


def test_a_model_that_nobody_knows_is_warned_about() -> None:
    terms = task_terms(asked(), Settings(anthropic_api_key=WITH_KEY, agent_model="somebody-elses-1"))
    assert "The model somebody-elses-1 is not known here" in " ".join(warnings_about(terms))
