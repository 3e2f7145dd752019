"""What the meter is told of calls, compactions and redactions."""

from dataclasses import replace
from decimal import Decimal
from functools import partial

import pytest
from temporalio.testing import ActivityEnvironment

from tests.support.agent_environment import NAME, NOON, SECRET, TASK, AgentEnvironment
from tests.support.full_context import estimate_request_size, make_summary_response
from tests.support.prices import PRICES
from tests.support.scopes import SYSTEM_SCOPE
from waystation.activities.agents import ContextActivities
from waystation.agents.call_ledger import CallKey, CallNotAffordable, CountedPrompt, PreparedCall
from waystation.agents.redaction import TextRedactor, VaultPlaceholderFactory, restore_text_from_vault
from waystation.context.tokens import estimate_fixed_tokens, estimate_messages
from waystation.context.transcript import Block, Charge, Text, Thinking, build_user_message
from waystation.kernel.amount import Limit
from waystation.kernel.errors import ModelError, ModelRejected, ModelUnavailable, RedactionFailed
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelRequest, ModelResponse, StopReason
from waystation.privacy.keys import AesGcmCipher
from waystation.privacy.policy import TextDestination
from waystation.security.placeholders import compute_fingerprint
from waystation.testing.doubles import ScriptedModel, make_scripted_response


async def ask(env: AgentEnvironment, model: ScriptedModel) -> Charge:
    env.model = model
    fence = (await env.make_tool_context()).fence
    request = ModelRequest(
        model="claude-opus-5-5", system="", messages=(build_user_message("m1", "Why?"),), max_output=1_000
    )
    call = await env.metered_model.prepare_call(request, Limit(tokens=100_000), floor=10, prices=PRICES)
    assert isinstance(call, PreparedCall)
    return (await env.metered_model.run_call(fence, CallKey("turn", "1"), call))[1]


async def test_why_a_reply_ended_is_kept_with_its_charge(env: AgentEnvironment) -> None:
    charge = await ask(env, ScriptedModel([make_scripted_response(stop=StopReason.MAX_TOKENS)]))
    assert charge.stop == "max_tokens"


async def test_an_answered_call_is_counted_with_the_charge_that_the_store_will_get(env: AgentEnvironment) -> None:
    await ask(env, ScriptedModel([make_scripted_response()]))
    (charge,) = env.meter.charges
    assert (charge.kind, charge.model, charge.usage.total) == ("turn", "claude-opus-5-5", 120)
    assert charge.cost_micro_usd == 100 * 4 + 20 * 20
    assert env.meter.failures == []


class Uncounted:
    """A `ChatModel` at an endpoint that counts no tokens."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        return make_scripted_response()

    async def count_tokens(self, request: ModelRequest) -> int | None:
        return None

    async def aclose(self) -> None:
        pass


async def test_without_a_count_the_bytes_are_the_bound_and_the_reply_is_shortened_to_what_is_left(
    env: AgentEnvironment,
) -> None:
    request = ModelRequest(
        model="claude-opus-5-5", system="", messages=(build_user_message("m1", "Why?"),), max_output=2_000
    )
    metered = replace(env.metered_model, model=Uncounted())
    whole = await metered.prepare_call(request, Limit(tokens=100_000), floor=10, prices=PRICES)
    assert isinstance(whole, PreparedCall)
    less = await metered.prepare_call(request, Limit(tokens=whole.worst_case.tokens - 500), floor=10, prices=PRICES)
    assert isinstance(less, PreparedCall)
    assert less.request.max_output == 1_500
    assert less.worst_case.tokens == whole.worst_case.tokens - 500
    none = await metered.prepare_call(request, Limit(tokens=whole.worst_case.tokens - 1_991), 10, PRICES)
    assert isinstance(none, CallNotAffordable)


def test_a_reported_count_below_our_own_estimate_does_not_bound_a_prompt() -> None:
    said = tuple(build_user_message(f"m{number}", "Why did it silt up?") for number in (1, 2))
    request = ModelRequest(model="claude-opus-5-5", system="You research. " * 100, messages=said, max_output=2_000)
    estimated = estimate_fixed_tokens(request.system, "") + estimate_messages(said[:1])

    def compute_bound(reported: int) -> int:
        return CountedPrompt(reported, messages=1, same_head=True).compute_token_bound(request, "")

    assert compute_bound(1) == compute_bound(estimated) == compute_bound(estimated + 10) - 10


class WithSpares(ScriptedModel):
    """One in whose place others may answer."""

    spares: tuple[str, ...] = ()
    answering: str = ""

    def list_fallbacks(self, model: str) -> tuple[str, ...]:
        return self.spares

    async def complete(self, request: ModelRequest) -> ModelResponse:
        return (await super().complete(request)).replace(called_model=self.answering)


CHEAP, DEAR, OTHER = "claude-haiku-4-5", "dear::claude-haiku-4-5", "claude-opus-4-5"
RATES = next(price for price in PRICES if price.model == CHEAP)
DEARER = RATES.replace(model=DEAR, rates=RATES.rates.replace(input=Decimal(7), output=Decimal(70)))
PAID = (*PRICES, DEARER)


async def test_a_call_is_held_at_the_dearest_rates_that_it_may_meet_and_charged_at_those_that_it_met(
    env: AgentEnvironment,
) -> None:
    model = WithSpares([make_scripted_response(usage=Usage(input=10, output=1))])
    model.spares, model.answering, env.model = (DEAR, OTHER), DEAR, model
    request = ModelRequest(model=CHEAP, system="", messages=(build_user_message("m1", "Why?"),), max_output=2_000)
    call = await env.metered_model.prepare_call(request, Limit(micro_usd=1_000_000), floor=10, prices=PAID)
    assert isinstance(call, PreparedCall)
    assert call.request.fallbacks == (DEAR, OTHER)
    tokens = call.worst_case.tokens - 2_000
    assert call.worst_case.micro_usd == tokens * 7 + 2_000 * 70
    fence = (await env.make_tool_context()).fence
    _, charge = await env.metered_model.run_call(fence, CallKey("turn", "1"), call)
    assert (charge.model, charge.cost_micro_usd) == (DEAR, 10 * 7 + 70)


async def test_who_has_no_price_takes_no_call_that_is_limited_in_dollars(env: AgentEnvironment) -> None:
    model = WithSpares([])
    model.spares, env.model = ("nobodys-1", DEAR), model
    request = ModelRequest(model=CHEAP, system="", messages=(build_user_message("m1", "Why?"),), max_output=2_000)
    dollars = await env.metered_model.prepare_call(request, Limit(micro_usd=1_000_000), floor=10, prices=PAID)
    tokens = await env.metered_model.prepare_call(request, Limit(tokens=100_000), floor=10, prices=PAID)
    assert isinstance(dollars, PreparedCall)
    assert isinstance(tokens, PreparedCall)
    assert (dollars.request.fallbacks, tokens.request.fallbacks) == ((DEAR,), ("nobodys-1", DEAR))


async def test_a_count_is_a_bound_for_models_of_one_family_alone(env: AgentEnvironment) -> None:
    model = WithSpares([])
    model.spares, env.model = (DEAR, OTHER), model
    words = build_user_message("m1", "Why? " * 400)
    request = ModelRequest(model=CHEAP, system="", messages=(words,), max_output=2_000)
    whole = await env.metered_model.prepare_call(request, Limit(tokens=100_000), floor=10, prices=PAID)
    assert isinstance(whole, PreparedCall)
    tight = await env.metered_model.prepare_call(
        request, Limit(tokens=whole.worst_case.tokens - 1), floor=10, prices=PAID
    )
    assert isinstance(tight, PreparedCall)
    assert tight.worst_case.tokens < whole.worst_case.tokens - 1
    assert tight.request.fallbacks == (DEAR,)


SAID = Text(text="Because.")


@pytest.mark.parametrize(
    ("usage", "blocks", "most_output"),
    [
        (Usage(), (SAID,), 200),
        (Usage(), (Thinking(thinking="Hm.", signature="s"), SAID), 2_000),
        (Usage(), (), 2_000),
        (Usage(input=70), (SAID,), 200),
        (Usage(cache_read=70), (SAID,), 200),
        (Usage(output=9), (SAID,), 9),
    ],
)
async def test_what_an_endpoint_does_not_report_is_charged_as_a_bound_and_marked(
    env: AgentEnvironment, usage: Usage, blocks: tuple[Block, ...], most_output: int
) -> None:
    env.model = ScriptedModel([make_scripted_response(*blocks, usage=usage)])
    fence = (await env.make_tool_context()).fence
    request = ModelRequest(
        model="claude-opus-5-5", system="", messages=(build_user_message("m1", "Why?"),), max_output=2_000
    )
    call = await env.metered_model.prepare_call(request, Limit(tokens=100_000), floor=10, prices=PRICES)
    assert isinstance(call, PreparedCall)
    reply, charge = await env.metered_model.run_call(fence, CallKey("turn", "1"), call)
    assert reply.usage == charge.usage
    assert charge.usage.prompt_tokens == (usage.prompt_tokens or call.worst_case.tokens - 2_000)
    assert 0 < charge.usage.output <= most_output
    assert charge.usage.estimated == charge.usage.total - usage.total > 0
    assert charge.cost_micro_usd is not None
    assert 0 < charge.cost_micro_usd <= call.worst_case.micro_usd
    await env.store.commit_charge(fence, charge)
    kept = await env.store.get_run_usage(fence.run_id)
    assert (kept.usage, kept.last_prompt_tokens) == (charge.usage, 0)


async def test_thinking_that_no_block_shows_is_charged_up_to_the_longest_reply(env: AgentEnvironment) -> None:
    unseen = make_scripted_response(SAID, usage=Usage()).replace(hidden_thinking=True)
    counted = unseen.replace(usage=Usage(input=5, output=7))
    assert (await ask(env, ScriptedModel([unseen]))).usage.output == 1_000
    assert (await ask(env, ScriptedModel([counted]))).usage.output == 7


async def test_who_answered_is_kept_with_the_charge_where_it_is_another(env: AgentEnvironment) -> None:
    await ask(env, ScriptedModel([make_scripted_response(model="claude-opus-5-5-20261001")]))
    await ask(env, ScriptedModel([make_scripted_response(model="another-model")]))
    same, other = env.meter.charges
    assert (same.answered_by, other.answered_by, other.model) == ("", "another-model", "claude-opus-5-5")
    fence = (await env.make_tool_context()).fence
    await env.store.commit_charge(fence, other)
    assert (await env.store.list_task_charges(TASK, SYSTEM_SCOPE)).cost_breakdown.lines[0].answered_by == (
        "another-model",
    )


async def test_what_was_reported_is_charged_as_it_was(env: AgentEnvironment) -> None:
    await ask(env, ScriptedModel([make_scripted_response(usage=Usage(input=7))]))
    (charge,) = env.meter.charges
    assert charge.usage == Usage(input=7)


@pytest.mark.parametrize("error", [ModelUnavailable("busy"), ModelRejected("no such model")])
async def test_a_call_without_a_reply_is_counted_as_what_it_was(env: AgentEnvironment, error: ModelError) -> None:
    with pytest.raises(type(error)):
        await ask(env, ScriptedModel([error]))
    assert env.meter.failures == [("turn", "claude-opus-5-5", error)]
    assert env.meter.charges == []


async def test_a_compaction_is_counted_as_it_ended(full_env: AgentEnvironment) -> None:
    full_env.model = ScriptedModel([make_summary_response()])
    request = full_env.make_compaction_request(await estimate_request_size(full_env))
    outcome = await ActivityEnvironment().run(ContextActivities(full_env.compactor, full_env.meter).compress, request)
    assert full_env.meter.compactions == [outcome]
    assert [charge.kind for charge in full_env.meter.charges] == ["summary"]


async def test_redactions_are_counted_by_where_the_text_goes(bare_env: AgentEnvironment) -> None:
    redactor = TextRedactor(bare_env.redactor, meter=bare_env.meter)
    texts = [f"{NAME} has {SECRET}", f"{SECRET} again"]
    assert await redactor.redact(texts, TextDestination.SUMMARY, "t") == await bare_env.redactor.redact(
        texts, TextDestination.SUMMARY, "t"
    )
    await redactor.redact(texts, TextDestination.TOOL_RESULT, "t")
    assert bare_env.meter.redactions == {TextDestination.SUMMARY: 3, TextDestination.TOOL_RESULT: 2}


async def test_what_the_vault_does_not_keep_is_not_counted_and_goes_nowhere(bare_env: AgentEnvironment) -> None:
    vault = bare_env.store.build_vault(AesGcmCipher(bytes(32), "vault"))
    originals = VaultPlaceholderFactory(vault, partial(compute_fingerprint, bytes(32)), lambda: NOON)
    redactor = TextRedactor(bare_env.redactor, originals, bare_env.meter, titles="redacted")
    (title,) = await redactor.redact([f"Ask {NAME}"], TextDestination.TITLE, "t")
    assert NAME not in title.text
    assert (await restore_text_from_vault(title.text, vault, "t")).text == f"Ask {NAME}"
    counted = dict(bare_env.meter.redactions)
    assert counted[TextDestination.TITLE] == 1
    async with bare_env.store.database.write() as connection:
        await connection.exec_driver_sql("ALTER TABLE vault RENAME TO vault_away")
    with pytest.raises(RedactionFailed, match="cannot be stored"):
        await redactor.redact([f"{NAME} has {SECRET}"], TextDestination.SUMMARY, "t")
    assert bare_env.meter.redactions == counted
