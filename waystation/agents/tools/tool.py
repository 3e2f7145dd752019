"""What a tool is: a name, an input model, and one coroutine that returns text or refuses with a reason."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue

from waystation.domain.compaction.policy import Policy
from waystation.domain.compaction.tokens import Measure
from waystation.domain.leg import RunRef
from waystation.domain.transcript import Record, Transcript
from waystation.domain.turn import Fence
from waystation.ports import ToolSpec

PAGE_CHARACTERS = 12_000
"""Most characters of one page of any tool; smaller in a small working window."""


class ToolInput(BaseModel):
    """Arguments of a call. Unknown ones are refused, so that the model learns of its error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


InputT = TypeVar("InputT", bound=ToolInput)


class ToolRefused(Exception):
    """The call cannot be carried out. The message tells the model why and what to do instead."""


@dataclass(frozen=True)
class CallSite:
    """Who calls, with which right to write."""

    run: RunRef
    fence: Fence
    call_id: str
    transcript: Transcript
    """The conversation so far; its last message asks for the call."""
    policy: Policy
    measure: Measure
    notices: list[str] = field(default_factory=list[str])
    """For people: "memory did not answer". Shown in the leg's outcome."""
    records: list[Record] = field(default_factory=list[Record])
    """What the call does to the conversation: committed before its result is."""

    @property
    def window(self) -> int:
        """Working window in tokens."""
        return self.policy.window

    @property
    def page_characters(self) -> int:
        """A page is at most a sixth of the working window (at four characters a token)."""
        return min(PAGE_CHARACTERS, self.window * 4 // 6)


class Tool(ABC):
    """One tool of the agents, as the toolbox sees it."""

    name: ClassVar[str]
    description: ClassVar[str]
    rereadable: ClassVar[bool] = False
    """Calling it again brings the same result, so an old result may be masked."""
    repeatable: ClassVar[bool] = True
    """Running it twice does no more than running it once. One that is not is never run again after a crash."""
    ends_run: ClassVar[bool] = False
    """A successful call hands in the agent's result."""

    originals: ClassVar[frozenset[str]] = frozenset()
    """Arguments that are looked for in documents as they were handed in: placeholders in them become again what they
    stand for. The result is redacted, whatever it repeats of them.
    """

    @property
    @abstractmethod
    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""

    @abstractmethod
    async def call(self, arguments: dict[str, JsonValue], at: CallSite) -> str:
        """Carry out one call with the arguments that the model wrote.

        Raises:
            ValidationError: the arguments do not fit. Becomes an error result.
            ToolRefused: becomes an error result.
        """


class TypedTool(Tool, Generic[InputT]):
    """A tool whose arguments are a pydantic model."""

    input_model: type[InputT]

    @property
    def spec(self) -> ToolSpec:
        """Name, description, and the model's JSON schema."""
        return ToolSpec(name=self.name, description=self.description, input_schema=self.input_model.model_json_schema())

    async def call(self, arguments: dict[str, JsonValue], at: CallSite) -> str:
        """Validate, then run."""
        return await self.run(self.input_model.model_validate(arguments), at)

    @abstractmethod
    async def run(self, arguments: InputT, at: CallSite) -> str:
        """Carry out one call. Raises ToolRefused."""


def page(lines: list[str], characters: int) -> tuple[list[str], bool]:
    """As many lines as fit, at least one (cut to fit), and whether that is all of them."""
    taken: list[str] = []
    room = characters
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        taken.append(line)
    if not taken and lines:
        return [lines[0][:characters] + " …"], len(lines) == 1
    return taken, len(taken) == len(lines)
