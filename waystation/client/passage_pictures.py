"""Pictures of cited passages on the pages of their PDFs, and in pictures that are documents.

Only texts of documents are stored, so a picture needs the file itself: its content hash says that it is the one that
was submitted.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from waystation.client.client import Client
from waystation.client.passage_views import redact_documents
from waystation.config.settings import Settings
from waystation.documents.document_loading import find_source_files
from waystation.documents.documents import SkippedItem, get_plain_place, parse_place_marker
from waystation.documents.readers.extraction import UnreadableFileError
from waystation.documents.readers.passage_image import (
    PassageImage,
    PassageImageRenderer,
    PassageImageRequest,
    build_passage_request,
)
from waystation.documents.readers.reader import compute_file_hash
from waystation.kernel.errors import BadInput
from waystation.privacy.policy import RedactionPolicy
from waystation.reports.blocks import NumberedSource

MAX_PICTURES = 100
"""Maximum pictures of one report."""
MAX_PICTURE_BYTES = 20_000_000
"""Maximum bytes of all pictures of one report."""


class CitedPassage(NamedTuple):
    """A cited passage on a page of a PDF or a picture."""

    request: PassageImageRequest
    lines: Sequence[str]
    """Lines of the whole document."""
    source_hash: str
    """Content hash of the file."""


class PassageImageResult(NamedTuple):
    """Pictures by the number of the source, and the sources without one, with the reasons."""

    pictures: Mapping[int, PassageImage]
    skipped_items: Sequence[SkippedItem]


async def load_cited_passage(client: Client, task_id: str, source: NumberedSource) -> CitedPassage:
    """Load where a source is on a page of a PDF or a picture.

    Raises:
        BadInput: it is not, or the document does not exist any more, or was not read from a file.
    """
    document = next((one for one in await client.list_documents(task_id) if one.name == source.document), None)
    if document is None or not document.source:
        raise BadInput(f"{source.name} was not read from a file, or is not among the documents any more")
    lines = (await client.get_document_text(task_id, document.name)).split("\n")
    request = build_passage_request(lines, source.first_line, source.last_line)
    if request is None:
        place = f"{source.name} ({source.where})"
        raise BadInput(f"the passage cited from {place} is neither on a page of a PDF nor in a picture")
    return CitedPassage(request, lines, document.source)


def render_cited_passage(passage: CitedPassage, path: Path) -> PassageImage:
    """Draw the passage on its page.

    Raises:
        BadInput: this is another file than the one that was submitted, or its page cannot be drawn.
    """
    if compute_file_hash(path) != passage.source_hash:
        raise BadInput(
            "this is not the submitted file, or the file has changed since it was submitted: choose the submitted file"
        )
    try:
        with PassageImageRenderer() as renderer:
            return renderer.render(path, passage.request)
    except UnreadableFileError as unreadable:
        raise BadInput(f"the file {unreadable}") from None


async def build_passage_pictures(
    client: Client, settings: Settings, task_id: str, sources: Sequence[NumberedSource], paths: Sequence[Path]
) -> PassageImageResult:
    """Draw the cited passages whose files are in these files and folders.

    A page that has private values has no picture: a picture cannot be redacted. Those are the values that the policy
    replaces in a report.

    Raises:
        BadInput: the policy of the task or of this machine is `strict`, which lets no picture out; the key is unusable.
        RedactionFailed: a text could not be redacted.
    """
    if RedactionPolicy.STRICT in {settings.privacy, (await client.get_last_known_task(task_id)).privacy}:
        raise BadInput("the privacy policy is strict: pictures of pages cannot be redacted, so none are exported")
    passages, left_out = dict[int, CitedPassage](), list[SkippedItem]()
    for source in (one for one in sources if not one.fault):
        try:
            passages[source.number] = await load_cited_passage(client, task_id, source)
        except BadInput as error:
            left_out.append(SkippedItem(name=f"[{source.number}]", reason=str(error)))
    files = find_source_files(paths, {one.source_hash for one in passages.values()})
    unchanged = await _find_public_lines(settings, passages.values())
    pictures, size = dict[int, PassageImage](), 0
    with PassageImageRenderer() as renderer:
        for number, passage in passages.items():
            reason = _find_obstacle(passage, files, unchanged[passage.source_hash])
            if not reason and (len(pictures) >= MAX_PICTURES or size >= MAX_PICTURE_BYTES):
                most = MAX_PICTURE_BYTES // 1_000_000
                reason = f"the report already has the maximum of {MAX_PICTURES} pictures or {most} MB"
            if not reason:
                try:
                    pictures[number] = picture = renderer.render(files[passage.source_hash], passage.request)
                    size += len(picture.png)
                except UnreadableFileError as unreadable:
                    reason = f"the file {unreadable}"
            if reason:
                left_out.append(SkippedItem(name=f"[{number}]", reason=reason))
    return PassageImageResult(pictures, left_out)


def _find_obstacle(passage: CitedPassage, files: Mapping[str, Path], unchanged: Sequence[bool]) -> str:
    """Return why there is no picture of a passage; empty if there may be one."""
    if passage.source_hash not in files:
        return "the file of this source was not given, or has changed since it was submitted"
    page = f"page {passage.request.page}"
    place = ""
    for line, is_unchanged in zip(passage.lines, unchanged, strict=True):
        if marker := parse_place_marker(line):
            place = get_plain_place(marker)
        if place == page and not is_unchanged:
            return f"{page} has private values, which a picture would show"
    return ""


async def _find_public_lines(settings: Settings, passages: Iterable[CitedPassage]) -> dict[str, list[bool]]:
    """Return for each line of each document whether redaction leaves it unchanged."""
    texts = {one.source_hash: one.lines for one in passages}
    redacted = await redact_documents(settings, texts)
    return {
        key: [one == other for one, other in zip(lines, redacted[key], strict=True)] for key, lines in texts.items()
    }
