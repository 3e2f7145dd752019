"""A tool of a tool server, as the agents' toolbox sees it."""

from pydantic import JsonValue

from waystation.agents.tools.tool import CallSite, Tool, ToolRefused
from waystation.domain.errors import ToolServerFailed
from waystation.domain.foreign_tools import ForeignToolSpec, bounded, framed, question
from waystation.domain.privacy import Place
from waystation.domain.projection import SOON, urgent
from waystation.domain.redaction import redaction_notes
from waystation.ports import Redactor, ToolServers, ToolSpec


class ForeignTool(Tool):
    """What it returns is framed as data with its source, also where it is an error."""

    permission = "foreign"
    urgency = urgent(SOON)

    def __init__(self, spec: ForeignToolSpec, servers: ToolServers, redactor: Redactor) -> None:
        self.name = spec.name
        self.description = spec.description
        self.rereadable = spec.read_only
        self.repeatable = spec.read_only or spec.idempotent
        self.definition = spec.definition.digest
        self._offered, self._servers, self._redactor = spec, servers, redactor

    @property
    def spec(self) -> ToolSpec:
        """With the server's own schema."""
        return ToolSpec(name=self.name, description=self.description, input_schema=self._offered.input_schema)

    def asks(self, arguments: dict[str, JsonValue]) -> str | None:
        """Everything that would be sent, where the config file wants a person to see it."""
        return question(self._offered, arguments) if self._offered.asks else None

    async def call(self, arguments: dict[str, JsonValue], at: CallSite) -> str:
        """The server checks the arguments itself. Its result is redacted as it was returned, then cut and framed."""
        try:
            result = await self._servers.call(self._offered, arguments)
        except ToolServerFailed as failure:
            raise ToolRefused(f"{failure}. Go on without it, or try once more later.") from None
        (redacted,) = await self._redactor.redact([result.text], Place.TOOL_RESULT, at.run.tenant)
        at.notices.extend(redaction_notes(redacted))
        text = framed(self._offered, bounded(result, redacted))
        if result.is_error:
            raise ToolRefused(text)
        return text
