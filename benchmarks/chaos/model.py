"""The model's side of the account: a Messages server that records every call it answered, whoever was killed."""

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from random import Random
from typing import Literal, NamedTuple

import httpx2

from tests.end_to_end.messages_server import MessagesServer
from tests.support.strict_server import BODY
from waystation.agents.planner import SUBMIT_PLAN
from waystation.models.anthropic.received_requests import CountTokensRequest, TextBlock, WireMessage
from waystation.planning.plan import PLANNING_ID, make_revision_id
from waystation.reports.reviewers import REVIEW_REPORT, REVISE_PLAN
from waystation.testing.messages_server import TurnCounter, build_error_response, has_status

MARK = "voyage-{}-"
"""Begins the names of a task's documents and is in its instructions, so that every request tells whose it is: in a
small window a contract has no room for the names."""
ANYBODY = ""
"""Summaries and reviews are asked for without the agent's name: they are counted for their task."""
LONGEST_PAUSE_S = 0.12
"""Twice a reply: before it and in the middle of it."""

_REFUSALS = ((HTTPStatus.INTERNAL_SERVER_ERROR, "api_error"), (529, "overloaded_error"))

_MARK = re.compile(MARK.format(r"(\d+)"))
_STEP = re.compile(r'<step id="([^"]+)"')
_TURNS = TurnCounter()


class CallId(NamedTuple):
    """What a call was for, without an attempt number."""

    task: int
    """Number of the task in its run; -1: the request does not tell."""
    agent: str
    kind: Literal["turn", "summary", "plan", "review"]
    number: str
    """Of the turn or the plan; a digest of what a summary was asked of."""


class Call(NamedTuple):
    """A call that was answered. Seconds since the epoch, by the clock that the workers' charges have, too."""

    id: CallId
    began: float


@dataclass
class CountingModel(MessagesServer):
    """Answers with small random delays, and says so when a call came in and when a reply is out."""

    delay: float = LONGEST_PAUSE_S
    calls: list[Call] = field(default_factory=list[Call])
    chance: Random = field(default_factory=Random)
    fault_share: float = 0.0
    """Share of calls that fail, from 0 to 1: half of them refused before any work, half with the reply cut off."""
    refused: int = 0
    cut: int = 0
    on_asked: Callable[[], object] = lambda: None
    on_replied: Callable[[], object] = lambda: None

    def reply(self, path: str, headers: dict[str, str], body: bytes) -> httpx2.Response:
        """The offline model's answer, or a refusal that bills nothing."""
        if not path.endswith("count_tokens") and self.chance.random() < self.fault_share / 2:
            self.refused += 1
            status, kind = self.chance.choice(_REFUSALS)
            return build_error_response(status, kind)
        return super().reply(path, headers, body)

    def pause(self) -> None:
        """Half of the time that a reply takes at most."""
        self.on_asked()
        time.sleep(self.chance.uniform(0, self.delay))

    def send(self, write: Callable[[bytes], object], reply: bytes) -> None:
        """The reply in two halves. Of some only the first, which a provider bills all the same."""
        half = len(reply) // 2
        write(reply[:half])
        time.sleep(self.chance.uniform(0, self.delay))
        if self.chance.random() < self.fault_share / 2:
            self.cut += 1
            raise ConnectionAbortedError
        write(reply[half:])
        self.on_replied()

    def record_answered(self, body: bytes, began: float) -> None:
        """Keep the call, before its reply goes out: from here on a provider would bill it."""
        self.calls.append(Call(call_id(body), began))


def call_id(body: bytes) -> CallId:
    """What the request was for."""
    request = CountTokensRequest.model_validate_json(body, extra="ignore")
    first = _text(request.messages[0])
    mark, step = _MARK.search(first), _STEP.search(first)
    task = int(mark[1]) if mark else -1
    tools = {tool.name for tool in request.tools}
    if tools & {SUBMIT_PLAN.name, REVISE_PLAN.name}:
        tries = sum(message.role == "assistant" for message in request.messages)
        agent = PLANNING_ID if SUBMIT_PLAN.name in tools else make_revision_id(1)  # by default there is one
        return CallId(task, agent, "plan", str(tries + 1))
    if REVIEW_REPORT.name in tools:
        return CallId(task, ANYBODY, "review", "")
    asked = BODY.validate_json(body)
    if step and has_status(asked):
        return CallId(task, step[1], "turn", str(_TURNS.get_turn(f"{task}/{step[1]}", asked)))
    return CallId(task, ANYBODY, "summary", hashlib.sha256(first.encode()).hexdigest()[:12])


def _text(message: WireMessage) -> str:
    return "\n".join(block.text for block in message.content if isinstance(block, TextBlock))
