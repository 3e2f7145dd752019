"""A redactor: numbers of tickets, such as ACME-4711, wherever identifiers are replaced. It sees what Waystation's own
recognisers have left of a text.
"""

import re
from collections.abc import Sequence

from waystation.plugins.api import (
    ConfiguredRedactor,
    RedactionLevel,
    RedactionResult,
    RedactorContext,
    Span,
    TextDestination,
    get_redaction_level,
    with_placeholders,
)

TICKET = re.compile(r"\bACME-\d{3,6}\b")  # linear in the length of a text, whatever it is


class TicketRedactor:
    """Implements the port `ConfiguredRedactor`."""

    version = "1"
    placeholder_types = frozenset({"TICKET"})
    description = "numbers of tickets"

    def __init__(self, context: RedactorContext) -> None:
        self._context = context

    async def redact(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        if get_redaction_level(destination, self._context.policy) < RedactionLevel.IDENTIFIERS:
            return tuple(RedactionResult(text=text) for text in texts)
        return tuple(with_placeholders(text, self._find(text, tenant)) for text in texts)

    def close(self) -> None:
        """It has started nothing."""

    def _find(self, text: str, tenant: str) -> list[Span]:
        return [
            Span(
                type="TICKET",
                start=found.start(),
                end=found.end(),
                score=1.0,
                placeholder=self._context.make_placeholder(tenant, "TICKET", found[0]),
            )
            for found in TICKET.finditer(text)
        ]


def create_redactor(context: RedactorContext) -> ConfiguredRedactor:
    return TicketRedactor(context)
