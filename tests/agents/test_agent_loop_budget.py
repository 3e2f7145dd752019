"""An allowance is never passed, whatever the model does with what a call may cost."""

import asyncio
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agents.conftest import opened_copy
from tests.agents.office import TERMS, Office, use
from waystation.domain.budget import Usage
from waystation.domain.compaction.tokens import upper_bound
from waystation.domain.errors import ModelUnavailable
from waystation.domain.leg import AllowanceSpent, Finished
from waystation.domain.messages import Text
from waystation.ports import ModelReply, ModelRequest
from waystation.testing import ScriptedModel, scripted_reply

RUN_ID = "task-1/research-1"
SUBMIT = scripted_reply(use("submit_findings", "c9", findings=[]))


def bound_of(request: ModelRequest) -> int:
    tools = json.dumps([spec.model_dump(mode="json") for spec in request.tools])
    return upper_bound(request.system + request.reminder, tools, request.messages)


async def first_request(office: Office) -> ModelRequest:
    """What the first call of a run sends."""
    office.limit = 1_000_000
    probe = ScriptedModel([ModelUnavailable("busy", possibly_billed=False)])
    with pytest.raises(ModelUnavailable):
        await office.leg(probe)
    return probe.requests[0]


async def test_a_call_whose_worst_case_fits_by_its_bytes_is_not_counted(office: Office) -> None:
    request = await first_request(office)
    office.limit = bound_of(request) + TERMS.max_output
    model = ScriptedModel([SUBMIT])
    await office.leg(model)
    assert model.requests[0].max_output == TERMS.max_output


async def test_the_reply_shrinks_to_what_is_left(office: Office) -> None:
    request = await first_request(office)
    counted = await office.model.count_tokens(request)
    assert counted < bound_of(request)
    office.limit = counted + 1_000
    model = ScriptedModel([SUBMIT])
    assert isinstance(await office.leg(model), Finished)
    assert model.requests[0].max_output == 1_000


@pytest.mark.parametrize(("missing", "calls"), [(0, 1), (1, 0), (700, 0)])
async def test_under_its_floor_a_reply_is_not_worth_a_call(office: Office, missing: int, calls: int) -> None:
    counted = await office.model.count_tokens(await first_request(office))
    office.limit = counted + TERMS.output_floor - missing
    model = ScriptedModel([SUBMIT])
    outcome = await office.leg(model)
    assert model.calls == calls
    if missing:
        assert isinstance(outcome, AllowanceSpent)
        assert outcome.needed == missing
    assert (await office.store.totals(RUN_ID)).possibly_billed == 0


async def test_a_run_with_nothing_makes_no_call(office: Office) -> None:
    office.limit = 0
    model = ScriptedModel([])
    assert isinstance(await office.leg(model), AllowanceSpent)
    assert model.calls == 0


async def test_more_money_lets_the_next_leg_go_on_where_the_last_one_stopped(office: Office) -> None:
    office.limit = 0
    stopped = await office.leg(ScriptedModel([]))
    assert isinstance(stopped, AllowanceSpent)
    office.limit += stopped.needed
    assert isinstance(await office.leg(ScriptedModel([SUBMIT]), 2), Finished)


class HungryModel(ScriptedModel):
    """Uses any part of what a call may use at most; sometimes its stream is cut."""

    def __init__(self, data: st.DataObject) -> None:
        super().__init__([])
        self._data = data

    async def complete(self, request: ModelRequest) -> ModelReply:
        self.requests.append(request)
        most, share = await self.count_tokens(request), st.floats(0, 1)
        prompt = round(most * self._data.draw(st.one_of(st.just(1.0), share), label="prompt"))
        cached = round(prompt * self._data.draw(share, label="cached"))
        output = round(request.max_output * self._data.draw(st.one_of(st.just(1.0), share), label="output"))
        if self._data.draw(st.integers(0, 4), label="cut") == 0:
            raise ModelUnavailable("the stream was cut", possibly_billed=True)
        usage = Usage(cache_write=prompt - cached, cache_read=cached, output=output)
        call_id = f"c{self.calls}"
        read = use("read_document", call_id, name="harbour.md")
        return scripted_reply(Text(text="x" * 40), read, usage=usage)


@settings(max_examples=20, deadline=None)
@given(limit=st.integers(3_000, 25_000), turn_limit=st.integers(1, 4), data=st.data())
def test_no_run_ever_passes_its_limit(stores: Path, limit: int, turn_limit: int, data: st.DataObject) -> None:
    async def work() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with opened_copy(stores / "planned.db", Path(folder)) as office:
                office.limit, office.terms = limit, TERMS.model_copy(update={"turn_limit": turn_limit})
                await work_until_spent(office, HungryModel(data))

    asyncio.run(work())


async def work_until_spent(office: Office, model: HungryModel) -> None:
    leg, outcome = 1, None
    while not isinstance(outcome, AllowanceSpent) and model.calls < 12:
        try:
            outcome = await office.leg(model, leg)
            leg += 1
        except ModelUnavailable:
            continue  # the same leg is tried again
        finally:
            totals = await office.store.totals(RUN_ID)
            assert totals.spent <= office.limit
            assert totals.usage.fresh <= office.limit
