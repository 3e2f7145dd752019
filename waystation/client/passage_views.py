"""Cited passages as people see them: the lines, the cells of a sheet, or the part of an e-mail."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from waystation.client.client import Client
from waystation.config.settings import Settings
from waystation.documents.cited_passages import PassageView, build_passage_view
from waystation.documents.documents import SkippedItem
from waystation.kernel.errors import BadInput
from waystation.kernel.value import Value
from waystation.privacy.policy import TextDestination, build_redacted_text
from waystation.reports.blocks import NumberedSource
from waystation.runtime.store_setup import find_placeholder_key
from waystation.tasks.task import tenant_hash


class SourceView(Value):
    """A source of a report, and its passage."""

    source: NumberedSource
    passage: PassageView


class PassageViewResult(NamedTuple):
    """Passages by the number of the source, and the sources without one, with the reasons."""

    passages: Mapping[int, PassageView]
    skipped_items: Sequence[SkippedItem]


async def load_source_view(client: Client, task_id: str, source: NumberedSource) -> SourceView:
    """Load the passage of a source as it was submitted.

    Raises:
        BadInput: the document is not among those of the task any more.
    """
    lines = (await client.get_document_text(task_id, source.document)).split("\n")
    return SourceView(source=source, passage=build_passage_view(lines, source.first_line, source.last_line))


async def load_redacted_source_view(client: Client, task_id: str, source: NumberedSource) -> SourceView:
    """Load the passage of a source as agents were shown it, whose lines the report cites.

    Raises:
        BadInput: the document is not among those of the task any more, or the key is unusable.
        RedactionFailed: the text could not be redacted.
    """
    lines = (await client.get_redacted_document_text(task_id, source.document)).split("\n")
    return SourceView(source=source, passage=build_passage_view(lines, source.first_line, source.last_line))


async def build_exported_passages(
    client: Client, settings: Settings, task_id: str, sources: Sequence[NumberedSource], *, redacted: bool
) -> PassageViewResult:
    """Load the passages of all sources whose check did not fail.

    Args:
        client: The client.
        settings: Settings of this machine, with the policy for reports.
        task_id: The task.
        sources: The sources of its report.
        redacted: Whether private values are replaced, as in the report.

    Raises:
        BadInput: the key is unusable.
        RedactionFailed: a text could not be redacted.
    """
    texts, left_out = dict[str, Sequence[str]](), list[SkippedItem]()
    cited = [one for one in sources if not one.fault]
    for source in cited:
        if source.document in texts:
            continue
        try:
            texts[source.document] = (await client.get_document_text(task_id, source.document)).split("\n")
        except BadInput as error:
            left_out.append(SkippedItem(name=f"[{source.number}]", reason=str(error)))
    shown = await redact_documents(settings, texts) if redacted else texts
    passages = {
        one.number: build_passage_view(shown[one.document], one.first_line, one.last_line)
        for one in cited
        if one.document in shown
    }
    return PassageViewResult(passages, left_out)


async def redact_documents(settings: Settings, texts: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Replace the values that the policy replaces in a report, in the lines of whole documents, by any key.

    Raises:
        BadInput: the key is unusable.
        RedactionFailed: a text could not be redacted.
    """
    from waystation.documents.name_redaction import redact_document_text  # noqa: PLC0415  it takes seconds to load
    from waystation.runtime.redaction_setup import create_redactor  # noqa: PLC0415

    tenant, shown = tenant_hash(settings.tenant), dict[str, Sequence[str]]()
    with closing(create_redactor(settings, await find_placeholder_key(settings))) as redactor:
        for key, lines in texts.items():
            text = "\n".join(lines)
            redacted = await redact_document_text(text, redactor, tenant, TextDestination.REPORT)
            shown[key] = build_redacted_text(text, redacted).lines
    return shown
