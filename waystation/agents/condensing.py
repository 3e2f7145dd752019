"""Asks the model that condenses for one summary: within budget and window, redacted again, without what it thought
aloud.
"""

from dataclasses import dataclass

from waystation.agents.metered import CallKey, MeteredModel, TooDear
from waystation.agents.roles import prompt
from waystation.domain.compaction.policy import Policy
from waystation.domain.compaction.request import CompactionRequest
from waystation.domain.compaction.strategies import STRATEGIES
from waystation.domain.compaction.summary import without_scratchpad
from waystation.domain.compaction.tokens import estimate_text
from waystation.domain.errors import ModelRejected
from waystation.domain.foreign_text import Tagged, tagged, without_tags
from waystation.domain.messages import Text, user_text
from waystation.domain.models import model_facts
from waystation.domain.privacy import Place
from waystation.domain.turn import Charge, Fence
from waystation.domain.value import Value
from waystation.ports import ModelRequest, Redactor, StopReason

HEADROOM = 2
"""A reply may have this many times the tokens that were asked for: models do not count exactly."""
REPLY_FLOOR = 128
SURE_SHARE = 75
"""Percent of a window that an estimate may fill: texts of several kinds together may have a third more tokens."""


class Answer(Value):
    """What the model wrote."""

    text: str
    """Redacted; blank where it refused."""
    charge: Charge
    """Not committed yet."""
    redactions: int


class NoAnswer(Value):
    """The model was not to be had. Nothing was charged."""

    note: str
    asked: bool
    """Whether it failed; else there was no money to ask it."""


@dataclass(frozen=True)
class CondensingModel:
    """The model of one compaction, charged to the agent run that needs it."""

    model: MeteredModel
    redactor: Redactor
    request: CompactionRequest
    fence: Fence
    policy: Policy

    def room(self, most: int) -> int:
        """Tokens of conversation that it can read for a summary of at most so many."""
        facts = model_facts(self.request.terms.condense_model)
        asked = estimate_text(self._system + self.policy.instructions)
        return max(1, (facts.window - most * HEADROOM - asked) * SURE_SHARE // 100)

    async def ask(self, name: str, conversation: str, length: tuple[int, int], note: str = "") -> Answer | NoAnswer:
        """Ask once; `name` is unique in the agent run, so that the call is charged once. `note` says what the
        conversation is, where it is not a whole one.

        Raises ModelUnavailable, RedactionFailed, FenceLost.
        """
        terms, run = self.request.terms, self.request.run
        ask = ModelRequest(
            model=terms.condense_model,
            system=self._system,
            messages=(user_text("m1", self._question(conversation, length, note)),),
            max_output=length[1] * HEADROOM,
        )
        left = self.request.limit.after((await self.model.transcripts.totals(run.run_id)).spent)
        call = await self.model.fitted(ask, left, min(REPLY_FLOOR, ask.max_output), terms.prices)
        if isinstance(call, TooDear):
            return NoAnswer(note="The budget did not allow a summary.", asked=False)
        try:
            reply, charge = await self.model.ask(self.fence, CallKey("summary", name), call)
        except ModelRejected as error:
            return NoAnswer(note=f"The summariser failed: {error}", asked=True)
        said = () if reply.stop is StopReason.REFUSAL else reply.blocks
        text = without_scratchpad("\n".join(block.text for block in said if isinstance(block, Text)))
        (redacted,) = await self.redactor.redact([text], Place.SUMMARY, run.tenant)
        # A placeholder alone is no summary.
        return Answer(text="" if redacted.unredacted else redacted.text, charge=charge, redactions=len(redacted.spans))

    @property
    def _system(self) -> str:
        return prompt(STRATEGIES[self.policy.strategy].prompt)

    def _question(self, conversation: str, length: tuple[int, int], note: str) -> str:
        wishes = self.policy.instructions.strip()
        heed = f"Whoever asked for the summary wants this heeded:\n{tagged('wishes', wishes)}" if wishes else ""
        parts = [
            f"Summarise this conversation in {length[0]} to {length[1]} tokens.",
            note,
            heed,
            tagged("conversation", _inside(conversation)),
            "Give the summary and nothing else.",
        ]
        return "\n".join(filter(None, parts))


def _inside(text: str) -> Tagged:
    """What was said, and the records of earlier compactions, whose frames stay: nothing in it can step out."""
    return Tagged(without_tags(text, "conversation", "wishes"))
