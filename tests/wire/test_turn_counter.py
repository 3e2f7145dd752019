"""How servers in process number the turns of agents, whose requests do not say."""

from pydantic import JsonValue

from waystation.context.transcript import STATUS_CLOSE, STATUS_OPEN
from waystation.testing.messages_server import TurnCounter

Said = dict[str, JsonValue]
CONTRACT: Said = {"role": "user", "content": "When is high water?"}


def status(text: str) -> Said:
    return {"role": "user", "content": f"{STATUS_OPEN}{text}{STATUS_CLOSE}"}


def turn(number: int) -> list[Said]:
    call: Said = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {}}
    result: Said = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "03:10"}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def number_of(turns: TurnCounter, *messages: Said) -> int:
    return turns.get_turn("research-1", {"messages": [*messages]})


def test_attempts_at_a_turn_have_one_number_also_where_a_compaction_came_between() -> None:
    turns = TurnCounter()
    assert number_of(turns, CONTRACT) == 1
    assert number_of(turns, CONTRACT, *turn(1)) == 2
    assert number_of(turns, CONTRACT, *turn(1), *turn(2)) == 3
    assert number_of(turns, CONTRACT, *turn(1), *turn(2), status("4,000 tokens left")) == 3
    summary: Said = {"role": "user", "content": "The start was summarised."}
    assert number_of(turns, CONTRACT, summary, *turn(2)) == 3
    assert number_of(turns, CONTRACT, summary, *turn(2), *turn(3)) == 4


def test_what_follows_a_reply_without_a_call_is_a_turn_of_its_own() -> None:
    turns = TurnCounter()
    silent: Said = {"role": "assistant", "content": "I have nothing to add."}
    told: Said = {"role": "user", "content": "Call a tool."}
    asked = [CONTRACT, *turn(1)]
    assert number_of(turns, *asked) == 1
    for number in (2, 3):
        asked += [silent, told]
        assert number_of(turns, *asked) == number


def test_agents_that_are_called_alike_have_numbers_of_their_own() -> None:
    turns = TurnCounter()
    other: Said = {"role": "user", "content": "When is low water?"}
    assert [number_of(turns, first) for first in (CONTRACT, other, CONTRACT)] == [1, 1, 1]
