"""Who takes a call where an endpoint is gone, overloaded or over its limit, and what that may cost at most."""

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from tests.support.prices import PRICES
from waystation.config.resolver import build_task_config, iter_called_models, resolve_endpoint_prices
from waystation.config.settings import Settings, format_setting_errors
from waystation.context.transcript import Message, Text, Thinking, ToolUse, build_user_message
from waystation.kernel.errors import (
    BadInput,
    BrokenEndpointError,
    ContentFilterError,
    ModelAuthenticationError,
    ModelError,
    ModelNotFoundError,
    ModelRejected,
    ModelUnavailable,
    SpendingLimitReached,
)
from waystation.kernel.usage import Usage
from waystation.models.endpoints import EndpointKind, EndpointRegistry
from waystation.models.http_errors import VendorErrorResponse
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.models.profiles import OFFLINE_MODEL, Price, TokenRates, compute_cost_micro_usd
from waystation.tasks.task import TaskConfig, TaskRequest
from waystation.testing.doubles import ScriptedModel, make_scripted_response
from waystation.workers.models import ModelRouter, create_model_router

FIRST, SPARE, LOCAL = "first::claude-sonnet-5-5", "spare::claude-sonnet-5-5", "local::qwen3"
ENDPOINTS = {
    "first": {"kind": "compatible", "base_url": "http://first.test", "fallback": ["spare", "local"]},
    "spare": {"kind": "compatible", "base_url": "http://spare.test"},
    "local": {"kind": "openai", "base_url": "http://local.test/v1", "model": "qwen3"},
}
REQUEST = ModelRequest(
    model=FIRST, system="Work.", messages=(build_user_message("m1", "What?"),), max_output=100, fallbacks=(SPARE, LOCAL)
)
FINE = make_scripted_response(Text(text="Fine."))
GONE = ModelUnavailable("refused", possibly_billed=False)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)


def places() -> EndpointRegistry:
    return Settings.model_validate({"endpoints": ENDPOINTS}).endpoint_registry


def switched(*scripts: list[ModelResponse | ModelError]) -> tuple[ModelRouter, dict[str, ScriptedModel]]:
    names: list[str] = ["first", "spare", "local"]
    models = dict(zip(names, map(ScriptedModel, scripts), strict=True))
    return ModelRouter(ScriptedModel([]), None, models, places()), models


def test_an_endpoint_names_its_fallbacks_by_endpoint_or_by_full_name() -> None:
    assert places().list_fallbacks(FIRST) == (SPARE, LOCAL)
    assert places().list_fallbacks(LOCAL) == ()
    assert places().list_fallbacks("claude-sonnet-5-5") == ()


@pytest.mark.parametrize("error", [GONE, SpendingLimitReached("no money"), ModelNotFoundError("no such model")])
async def test_a_call_that_was_certainly_not_billed_goes_to_the_next_at_once(error: ModelError) -> None:
    switch, models = switched([error], [FINE, FINE], [])
    reply = await switch.complete(REQUEST)
    assert (reply.blocks, reply.called_model) == (FINE.blocks, SPARE)
    assert models["spare"].requests[0].model == "claude-sonnet-5-5"
    await switch.complete(REQUEST)
    assert models["first"].calls == 1, "it is passed by for a while"


async def test_a_call_that_may_have_been_billed_fails_and_the_next_attempt_goes_elsewhere() -> None:
    switch, models = switched([ModelUnavailable("cut", retry_after=300)], [FINE], [])
    with pytest.raises(ModelUnavailable) as raised:
        await switch.complete(REQUEST)
    assert raised.value.possibly_billed
    assert raised.value.retry_after is None
    assert (await switch.complete(REQUEST)).called_model == SPARE
    assert models["first"].calls == 1


async def test_a_short_delay_is_waited_for_and_a_refused_request_is_nobody_elses() -> None:
    short = ModelUnavailable("slow down", retry_after=2, possibly_billed=False)
    for error in (short, ModelRejected("bad request")):
        switch, models = switched([error], [FINE], [])
        with pytest.raises(type(error)):
            await switch.complete(REQUEST)
        assert models["spare"].calls == 0


async def test_where_all_are_away_it_is_worth_another_attempt_and_all_are_asked_again() -> None:
    switch, models = switched([SpendingLimitReached("no money"), FINE], [GONE], [GONE])
    with pytest.raises(ModelUnavailable):
        await switch.complete(REQUEST)
    assert (await switch.complete(REQUEST)).called_model == ""
    assert [model.calls for model in models.values()] == [2, 1, 1]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ModelAuthenticationError("no"), "no; the worker reads the key from FIRST_KEY, which is not set"),
        (ModelNotFoundError("gone"), f"gone; check the name and the endpoint with `waystation doctor --model {FIRST}`"),
        (ModelUnavailable("slow down", retry_after=2, possibly_billed=False), "slow down"),
        (SpendingLimitReached("no money"), "no money"),
    ],
    ids=["key", "gone", "rate limit", "spending limit"],
)
async def test_an_error_names_the_model_at_its_endpoint_and_what_to_look_at(error: ModelError, told: str) -> None:
    switch = ModelRouter(
        ScriptedModel([]), None, {"first": ScriptedModel([error])}, EndpointRegistry(), keys={"first": "FIRST_KEY"}
    )
    with pytest.raises(type(error)) as raised:
        await switch.complete(REQUEST.replace(fallbacks=()))
    assert str(raised.value) == f"{FIRST}: {told}"
    assert vars(raised.value) == vars(error)


async def test_a_key_that_is_set_is_named_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRST_KEY", "sk-secret")
    first = ScriptedModel([ModelAuthenticationError("no")])
    switch = ModelRouter(ScriptedModel([]), None, {"first": first}, places(), keys={"first": "FIRST_KEY"})
    with pytest.raises(ModelAuthenticationError) as raised:
        await switch.complete(REQUEST)
    assert str(raised.value) == f"{FIRST}: no; the worker reads the key from FIRST_KEY"


async def test_a_page_in_the_place_of_a_reply_sends_the_call_to_the_next() -> None:
    switch, models = switched([BrokenEndpointError("a page")], [FINE], [])
    assert (await switch.complete(REQUEST)).called_model == SPARE
    assert models["first"].calls == 1


REFUSED = ModelRejected("the API key was not accepted")


async def test_a_fallback_that_does_not_take_the_call_leaves_it_to_the_next() -> None:
    switch, models = switched([GONE], [REFUSED], [FINE, FINE])
    assert (await switch.complete(REQUEST)).called_model == LOCAL
    assert (await switch.complete(REQUEST)).called_model == LOCAL
    assert [model.calls for model in models.values()] == [1, 1, 2], "who refused it is passed by, too"


@pytest.mark.parametrize("error", [GONE, SpendingLimitReached("no money"), ModelNotFoundError("no such model")])
async def test_where_no_fallback_takes_the_call_the_first_error_holds_also_while_it_is_passed_by(
    error: ModelError,
) -> None:
    switch, models = switched(
        [error, error, FINE], [REFUSED, REFUSED, REFUSED], [REFUSED, ModelNotFoundError("none"), REFUSED]
    )
    for _ in range(2):
        with pytest.raises(type(error)) as raised:
            await switch.complete(REQUEST)
        assert str(raised.value).startswith(f"{FIRST}: {error}")
    assert (await switch.complete(REQUEST)).called_model == ""
    assert models["first"].calls == 3
    switch, models = switched([ModelUnavailable("cut"), FINE], [REFUSED], [REFUSED])
    with pytest.raises(ModelUnavailable):
        await switch.complete(REQUEST)
    assert (await switch.complete(REQUEST)).called_model == "", "who did not answer is better than who refuses"


async def test_what_a_fallback_blocked_is_asked_of_nobody_else_since_it_may_have_been_billed() -> None:
    switch, models = switched([GONE], [ContentFilterError("blocked")], [])
    with pytest.raises(ContentFilterError):
        await switch.complete(REQUEST)
    assert models["local"].calls == 0


class Uncountable(ScriptedModel):
    """An endpoint that is away also where tokens are to be counted."""

    async def count_tokens(self, request: ModelRequest) -> int:
        raise GONE


async def test_nobody_waits_for_a_count_where_another_model_can_take_the_call() -> None:
    first = Uncountable([FINE])
    switch = ModelRouter(ScriptedModel([]), None, {"first": first, "spare": ScriptedModel([FINE])}, places())
    assert await switch.count_tokens(REQUEST) is None
    assert (await switch.complete(REQUEST)).called_model == SPARE
    alone = Settings.model_validate({"endpoints": {"first": {**ENDPOINTS["first"], "fallback": []}}}).endpoint_registry
    with pytest.raises(ModelUnavailable):
        await ModelRouter(ScriptedModel([]), None, {"first": first}, alone).count_tokens(REQUEST)


async def test_thinking_goes_to_models_of_one_family_alone_and_settings_to_who_takes_them() -> None:
    thought = Message(
        id="m2",
        role="assistant",
        blocks=(Thinking(thinking="Hm.", signature="c2ln"), ToolUse(id="t1", name="search", input={})),
    )
    asked = REQUEST.replace(messages=(*REQUEST.messages, thought), effort="high", max_output=90_000)
    switch, models = switched([GONE], [FINE], [])
    await switch.complete(asked)
    assert models["spare"].requests[0].messages == asked.messages
    assert models["spare"].requests[0].effort == "high"
    switch, models = switched([GONE], [GONE], [FINE])
    await switch.complete(asked)
    (sent,) = models["local"].requests
    assert [block.type for block in sent.messages[1].blocks] == ["tool_use"]
    assert (sent.model, sent.effort, sent.thinking) == ("qwen3", None, None)
    switch, models = switched([FINE], [], [])
    said = thought.replace(fallback_model=LOCAL)
    await switch.complete(asked.replace(messages=(*REQUEST.messages, said)))
    assert [block.type for block in models["first"].requests[0].messages[1].blocks] == ["tool_use"]


def price(model: str, usd: str) -> Price:
    rates = TokenRates(input=Decimal(usd), output=Decimal(usd), cache_write=Decimal(usd), cache_read=Decimal(usd))
    return Price(model=model, rates=rates, source="own price file")


def test_terms_take_along_the_prices_of_all_that_may_answer() -> None:
    settings = Settings.model_validate({"endpoints": ENDPOINTS, "endpoint": "first"})
    request = TaskRequest.model_validate({"question": "What?", "request_id": "r", "budget": {"micro_usd": 9_000_000}})
    models = {*iter_called_models(request, settings)}
    assert {FIRST, SPARE, LOCAL} <= models
    written = [price("claude-sonnet-5-5", "2"), price("claude-haiku-5-5", "1"), price(LOCAL, "0")]
    dear = price(SPARE, "9")
    taken = resolve_endpoint_prices(models, [*written, dear], settings)
    assert {one.model: one.rates.input for one in taken if "::" in one.model} == {
        LOCAL: 0,
        FIRST: 2,
        SPARE: 9,
        "first::claude-haiku-5-5": 1,
        "spare::claude-haiku-5-5": 1,
    }
    agent = build_task_config(request, settings, [*written, dear], dear.since).default
    assert agent.model == FIRST
    assert {one.model for one in agent.prices} == {one.model for one in taken if "::" in one.model}


REFUSALS: dict[tuple[int, str, str], tuple[str, type[ModelError]]] = {
    (404, "", ""): ("no such model or endpoint", ModelNotFoundError),
    (400, "ValidationException", "The provided model identifier is invalid."): (
        "not in this region",
        ModelNotFoundError,
    ),
    (404, "", "This model version has reached the end of its life."): ("retired", ModelNotFoundError),
    (403, "", "You don't have access to the model with the specified model ID."): ("no access", ModelRejected),
    (403, "", "The security token included in the request is expired"): ("have expired", ModelAuthenticationError),
    (400, "", "Invocation with on-demand throughput isn't supported."): ("inference profile", ModelRejected),
    (400, "context_length_exceeded", ""): ("longer than the model's window", ModelRejected),
    (429, "insufficient_quota", ""): ("no credit", SpendingLimitReached),
    (429, "", "You exceeded your current quota"): ("no credit", SpendingLimitReached),
    (429, "rate_limit_exceeded", ""): ("rate limit", ModelUnavailable),
    (401, "", ""): ("was not accepted", ModelAuthenticationError),
    (403, "", ""): ("lacks permission for this", ModelAuthenticationError),
    (424, "ModelErrorException", ""): ("the model failed", ModelUnavailable),
    (200, "throttlingException", ""): ("rate limit", ModelUnavailable),
    (200, "insufficient_quota", ""): ("the provider failed", ModelUnavailable),
}
"""By status, kind and words: what the error says, and which it is."""


def test_refusals_of_all_vendors_are_one_table() -> None:
    errors = {refused: VendorErrorResponse(*refused, "", {}).model_error for refused in REFUSALS}
    assert {refused: type(error) for refused, error in errors.items()} == {
        refused: error for refused, (_, error) in REFUSALS.items()
    }
    said = {refused: str(error) for refused, error in errors.items()}
    assert {refused: words for refused, words in said.items() if REFUSALS[refused][0] not in words} == {}


def test_the_page_on_other_endpoints_shows_a_config_file_that_works(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "use-another-endpoint.md").read_text()
    example = next(part for part in page.split("```toml\n")[1:] if "kind =" in part).partition("```")[0]
    (tmp_path / "config.toml").write_text(example)
    settings = Settings()
    assert settings.uses_offline_model is False
    assert settings.get_model_options("research").model == LOCAL
    assert settings.get_model_options("writing").model == "claude::claude-sonnet-5-5"
    assert settings.get_summary_model("research", "claude-haiku-5-5") == LOCAL
    assert settings.endpoint_registry.list_fallbacks("claude::claude-sonnet-5-5") == (
        "spare::eu.anthropic.claude-sonnet-5-5",
        LOCAL,
    )
    assert settings.planner_model == "claude::claude-sonnet-5-5"


def test_the_page_of_endpoints_points_at_every_kind_of_endpoint_in_three_lines(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "endpoints.md").read_text()
    (tables,) = (part for part in page.partition("## An example of each kind")[2].split("```toml\n")[1:2])
    tables = tables.partition("```")[0]
    (tmp_path / "config.toml").write_text(tables)
    named = Settings().named_endpoints
    assert {endpoint.kind for endpoint in named.values()} == {*get_args(EndpointKind)}
    assert all(len(table.strip().splitlines()) <= 4 for table in tables.split("\n\n")), "its name and three lines"
    assert all(
        place.url.startswith("http")
        for place in map(Settings().endpoint_registry.get_endpoint, (f"{name}::m" for name in named))
    )


BROKEN: list[tuple[dict[str, object], str, str]] = [
    ({"kind": "bedrock"}, "x", "it needs a region"),
    ({"kind": "compatible"}, "x", "it needs a base_url"),
    ({"kind": "foundry"}, "x", "it needs either a resource or a base_url, not both"),
    ({"kind": "compatible", "base_url": "http://a/v1"}, "x", "remove /v1"),
    ({"kind": "openai", "base_url": "http://a/v1/chat/completions"}, "x", "remove /chat/completions"),
    ({"kind": "openai", "base_url": "a.test"}, "x", "must be the http or https address"),
    ({"kind": "tele pathy"}, "x.kind", ""),
    ({"kind": "openai", "key": "sk-1"}, "x.key", ""),
    ({"kind": "openai", "base_url": 5}, "x.base_url", ""),
    ({"m": {"tools": "perhaps"}}, "x.m.tools", ""),
]


def test_a_table_that_cannot_work_is_refused_where_it_was_written_with_what_it_needs() -> None:
    def refusal(table: dict[str, object]) -> str:
        try:
            Settings.model_validate({"endpoints": {"x": table}})
        except ValidationError as refused:
            return format_setting_errors(refused)
        return "taken"

    refusals = [(table, place, fault, refusal(table)) for table, place, fault in BROKEN]
    assert [
        (table, said)
        for table, place, fault, said in refusals
        if not said.startswith(f"endpoints.{place} in ") or fault not in said or "sk-1" in said
    ] == []


def test_a_model_at_an_endpoint_without_a_table_is_refused_when_a_task_is_submitted() -> None:
    request = TaskRequest.model_validate({"question": "What?", "request_id": "r"})
    for given in (
        {"endpoint": "nowhere"},
        {"plan_model": "nowhere::m"},
        {"roles": {"writing": {"endpoint": "nowhere"}}},
    ):
        with pytest.raises(BadInput, match=r"add \[endpoints.nowhere\]"):
            build_task_config(request, Settings.model_validate({**given, "offline": False}), [], date(2026, 11, 25))


@pytest.mark.parametrize("setting", ["agent_model", "plan_model", "condense_model", "review_model", "judge_model"])
def test_a_full_name_alone_says_that_the_offline_model_does_not_work(setting: str) -> None:
    assert Settings.model_validate({setting: "qwen3"}).uses_offline_model
    assert not Settings.model_validate({setting: LOCAL}).uses_offline_model
    assert not Settings.model_validate({"roles": {"research": {"model": LOCAL}}}).uses_offline_model
    assert Settings.model_validate({setting: LOCAL, "offline": True}).uses_offline_model
    with pytest.raises(BadInput, match=r"add \[endpoints.nowhere\]"):
        submitted({"agent_model": LOCAL, setting: "nowhere::m"})


def submitted(given: Mapping[str, object]) -> TaskConfig:
    request = TaskRequest.model_validate({"question": "What?", "request_id": "r"})
    settings = Settings.model_validate({"endpoints": ENDPOINTS, **given})
    return build_task_config(request, settings, [], date(2026, 11, 25))


ALL_LOCAL: dict[str, object] = {"agent_model": LOCAL, "plan_model": LOCAL, "condense_model": LOCAL}


def test_full_names_alone_need_no_key_of_the_provider_unless_a_model_is_there() -> None:
    assert submitted(ALL_LOCAL).default.model == LOCAL
    with pytest.raises(BadInput, match="the endpoint of claude-haiku-5-5 needs a key: set ANTHROPIC_API_KEY"):
        submitted({"agent_model": LOCAL})
    with pytest.raises(BadInput, match="the endpoint of claude-haiku-5-5 needs a key: set ANTHROPIC_API_KEY"):
        submitted({**ALL_LOCAL, "judge_model": "claude-haiku-5-5"})
    elsewhere = submitted({"agent_model": LOCAL, "offline": False})
    assert elsewhere.plan_model == LOCAL
    assert elsewhere.default.condense_model == "claude-haiku-5-5", "workers may have the key"


OPENAI: dict[str, object] = {"kind": "openai", "model": "m"}
LACKING: dict[str, tuple[dict[str, object], str]] = {
    "a variable that was named": ({"kind": "compatible", "base_url": "http://x.test", "key_from": "KEY_X"}, "KEY_X"),
    "the same of chat completions": ({**OPENAI, "base_url": "http://x.test/v1", "key_from": "KEY_X"}, "KEY_X"),
    "one beside a platform's own credentials": (
        {"kind": "bedrock", "region": "us-east-1", "key_from": "KEY_X"},
        "KEY_X",
    ),
    "the provider's": ({"kind": "anthropic"}, "ANTHROPIC_API_KEY"),
    "that of chat completions' maker": (OPENAI, "OPENAI_API_KEY"),
    "the same by its address": ({**OPENAI, "base_url": "https://API.openai.com/v1/"}, "OPENAI_API_KEY"),
}


@pytest.mark.parametrize(("table", "variable"), LACKING.values(), ids=LACKING)
async def test_an_endpoint_without_its_key_is_refused_by_the_variable_where_it_is_used_and_only_there(
    monkeypatch: pytest.MonkeyPatch, table: dict[str, object], variable: str
) -> None:
    lacking: dict[str, object] = {"endpoints": {**ENDPOINTS, "x": table}}
    with pytest.raises(BadInput, match=f"the endpoint of x::m needs a key: set {variable} in this environment"):
        submitted({**lacking, **ALL_LOCAL, "roles": {"writing": {"model": "x::m"}}})
    with pytest.raises(BadInput, match=f"needs a key: set {variable}$"):
        create_model_router(Settings.model_validate({**lacking, "endpoint": "x"}))
    switch = create_model_router(Settings.model_validate({**lacking, "endpoint": "local"}))
    with pytest.raises(ModelRejected, match=f"needs a key: set {variable}$"):
        await switch.complete(REQUEST.replace(model="x::m", fallbacks=()))
    await switch.aclose()
    monkeypatch.setenv(variable, "key")
    assert (
        submitted({**lacking, **ALL_LOCAL, "roles": {"writing": {"model": "x::m"}}}).get_config("writing").model
        == "x::m"
    )


def test_a_missing_key_is_told_of_without_who_may_use_the_address() -> None:
    table = {"kind": "compatible", "base_url": "http://ann:hush@X.test:8080/llm/", "key_from": "KEY_X"}
    with pytest.raises(BadInput) as refused:
        create_model_router(Settings.model_validate({"endpoints": {"x": table}, "endpoint": "x"}))
    assert str(refused.value) == "the endpoint at http://x.test:8080/llm needs a key: set KEY_X"


@pytest.mark.parametrize("fallback", ["spair", "qwen3", "nowhere::qwen3", "local:qwen3"])
def test_a_fallback_that_is_nowhere_is_refused_where_it_was_written(fallback: str) -> None:
    tables = {**ENDPOINTS, "first": {**ENDPOINTS["first"], "fallback": ["spare", fallback]}}
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate({"endpoints": tables})
    errors = format_setting_errors(refused.value)
    assert f"'{fallback}', the fallback of the endpoint first, is neither an endpoint" in errors


@pytest.mark.parametrize("fallback", ["spare", "local::any-1", "claude-sonnet-5-5", OFFLINE_MODEL])
def test_a_fallback_is_an_endpoint_a_full_name_or_a_model_that_is_known(fallback: str) -> None:
    tables = {**ENDPOINTS, "first": {**ENDPOINTS["first"], "fallback": [fallback]}}
    assert len(Settings.model_validate({"endpoints": tables}).endpoint_registry.list_fallbacks(FIRST)) == 1


def test_the_offline_model_costs_nothing_so_that_dollars_can_be_its_budget() -> None:
    request = TaskRequest.model_validate({"question": "What?", "request_id": "r", "budget": {"micro_usd": 1_000_000}})
    terms = build_task_config(request, Settings(), PRICES, date(2026, 11, 25))
    assert terms.budget.micro_usd == 1_000_000
    assert (
        compute_cost_micro_usd(
            terms.default.model, Usage(input=10**6, output=10**6), date(2026, 11, 25), terms.default.prices
        )
        == 0
    )


async def test_what_a_stream_that_broke_reported_is_priced_for_the_model_that_was_asked() -> None:
    broke = ModelUnavailable("the stream was cut", retry_after=5)
    broke.reported_usage = Usage(input=900, output=20)
    switch, _ = switched([GONE, FINE], [broke], [])
    with pytest.raises(ModelUnavailable) as raised:
        await switch.complete(REQUEST)
    assert (raised.value.reported_usage, raised.value.called_model, raised.value.retry_after) == (
        broke.reported_usage,
        SPARE,
        None,
    )
