"""What an agent's calls have handed in, derived from its conversation: so that it can be taken back with it."""

from collections.abc import Iterable, Mapping
from typing import Protocol, Self

from pydantic import JsonValue

from waystation.agents.tools.submit_analysis import SubmitAnalysis, SubmitAnalysisInput
from waystation.agents.tools.submit_findings import SubmitFindings, SubmitFindingsInput
from waystation.agents.tools.submit_report import SubmitReport, SubmitReportInput
from waystation.agents.tools.write_section import WriteSection, WriteSectionInput
from waystation.domain.messages import Message
from waystation.domain.work import Deliverable


class HandIn(Protocol):
    """Arguments of a call that hands something in."""

    @classmethod
    def model_validate(cls, obj: Mapping[str, JsonValue], /) -> Self:
        """Read them. Raises ValidationError."""
        ...

    def handed_in(self, before: Deliverable | None) -> Deliverable:
        """What there is after the call."""
        ...


HAND_INS: Mapping[str, type[HandIn]] = {
    SubmitFindings.name: SubmitFindingsInput,
    SubmitAnalysis.name: SubmitAnalysisInput,
    WriteSection.name: WriteSectionInput,
    SubmitReport.name: SubmitReportInput,
}


def handed_in_by(messages: Iterable[Message]) -> Deliverable | None:
    """What the successful calls of these messages have handed in; None where there is none."""
    messages = tuple(messages)
    done = {result.tool_use_id for message in messages for result in message.tool_results if not result.is_error}
    handed_in: Deliverable | None = None
    for call in (call for message in messages for call in message.tool_uses if call.id in done):
        if (arguments := HAND_INS.get(call.name)) is not None:
            handed_in = arguments.model_validate(call.input).handed_in(handed_in)
    return handed_in
