"""E-mail (.eml) to text: who wrote to whom when, the message, and its attachments as parts of it."""

from collections.abc import Callable, Iterator
from email import message_from_bytes, policy
from email.message import MIMEPart

from waystation.adapters.documents.decoding import decoded, page_text
from waystation.adapters.documents.extract import Extract, Part, Unreadable
from waystation.domain.documents import LeftOut

_HEADERS = ("From", "To", "Cc", "Date", "Subject")
LONGEST_ATTACHMENT_NAME = 60
"""Characters."""

ReadAttachment = Callable[[bytes, str], Extract]
"""What reads the bytes of a file of that name. Raises Unreadable."""


def mail_extract(content: bytes, read: ReadAttachment) -> Extract:
    """Headers and message without a place, then each attachment that can be read; the others are named."""
    message = message_from_bytes(content, policy=policy.default)
    headers = [f"{name}: {' '.join(str(message[name]).split())}" for name in _HEADERS if message[name]]
    parts = [Part("", "\n".join(headers))]
    body = message.get_body(("plain", "html"))
    if body is not None:
        parts.append(Part("", _text(body)))
    left_out: list[LeftOut] = []
    for number, attachment in enumerate(_attachments(message), 1):
        name = _name(attachment, number)
        try:
            extract = read(_content(attachment), name)
        except Unreadable as unreadable:
            left_out.append(LeftOut(name=_within("", name), reason=str(unreadable)))
            continue
        parts += [Part(_within(part.place, name), part.text) for part in extract.parts]
        left_out += [LeftOut(name=_within(item.name, name), reason=item.reason) for item in extract.left_out]
    return Extract(parts, left_out)


def _attachments(message: MIMEPart) -> Iterator[MIMEPart]:
    if message.is_multipart():
        yield from message.iter_attachments()
    elif message.get_body() is None:
        # The whole e-mail is one file.
        yield message


def _name(attachment: MIMEPart, number: int) -> str:
    name = " ".join((attachment.get_filename() or f"number {number}").split())
    if attachment.get_content_type() == "message/rfc822" and not name.endswith(".eml"):
        name += ".eml"
    return name if len(name) <= LONGEST_ATTACHMENT_NAME else f"…{name[1 - LONGEST_ATTACHMENT_NAME :]}"


def _content(attachment: MIMEPart) -> bytes:
    payload: object = attachment.get_payload(decode=True)
    if isinstance(payload, bytes):
        return payload
    # An e-mail that was forwarded as a file.
    inner = next(attachment.iter_parts(), None)
    return inner.as_bytes() if inner is not None else b""


def _text(body: MIMEPart) -> str:
    content, encoding = _content(body), body.get_content_charset()
    return page_text(content, encoding) if body.get_content_subtype() == "html" else decoded(content, encoding)


def _within(place: str, name: str) -> str:
    return f"{place} of attachment {name}" if place else f"attachment {name}"
