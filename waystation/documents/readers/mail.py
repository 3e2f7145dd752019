"""Converts e-mail (.eml, mailboxes) to text: headers, the whole message, and its attachments as parts.

Runs in the child only. One walk over the whole tree of parts: each leaf is in the text, listed as left out, or another
form of a part that is in the text.
"""

import re
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from email import errors, message_from_bytes, policy
from email.generator import BytesGenerator
from email.header import decode_header, make_header
from email.message import Message
from io import BytesIO
from itertools import pairwise
from typing import NamedTuple, cast

from waystation.documents.cited_passages import EMAIL_HEADERS
from waystation.documents.documents import SkippedItem
from waystation.documents.readers.extraction import (
    FROM_LINE,
    HEAD_BYTES,
    DocumentPart,
    ExtractionResult,
    UnreadableFileError,
    is_picture,
    is_utf8,
)
from waystation.kernel.patterns import compile_bounded

MAX_NESTED_EMAILS = 3
"""Maximum depth of e-mails within e-mails."""
MAX_ATTACHMENT_NAME_CHARACTERS = 60
"""Maximum characters of an attachment's name."""
_MAX_HEADER_CHARACTERS = 20_000
"""Maximum characters of a parsed header. The library's parser of addresses is slow for longer ones, which are shown
raw.
"""

_SPARE_FORMS = frozenset({"text/enriched", "text/richtext", "text/watch-html", "text/x-amp-html"})
"""Forms that a program adds to those that all programs show."""
_NO_READER = frozenset({"text/css", "text/ecmascript", "text/javascript"})
_SIGNATURES = frozenset({"application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature"})
_ENCRYPTED = frozenset({"application/pgp-encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime"})
_OUTLOOK = frozenset({"application/ms-tnef", "application/vnd.ms-tnef"})
_SELDOM_TEXT = frozenset({"audio", "font", "image", "model", "video"})
"""Parts of these types that are text after all have an encoding that leaves no doubt."""
_MESSAGES = frozenset({"message/rfc822", "message/global", "message/news", "message/partial"})
_UNSHOWN = "no mail program shows it"
_STOCK = compile_bounded(r"mime|multi-?part|cryptographically signed|openpgp", re.IGNORECASE)
"""Text before the first part, written for programs of the 1990s."""
_MAX_STOCK_CHARACTERS = 1_000
_WORD = compile_bounded(r"[\w^~]+")
_ADDRESS = compile_bounded(r"(?:https?://|mailto:|cid:)[^\s)\]>]*+")
_MAX_OTHER_WORDS = 3
"""Words that a form may have of its own and still count as the same message; then only the lines with them are read."""
_LINK_TEXT = compile_bounded(r"\[[^\[\]\n]{0,200}+(?:\[[^\[\]\n]{0,200}+\][^\[\]\n]{0,200}+){0,2}+\](?=\()")
"""May contain a picture."""
_STOCK_LINE = compile_bounded(
    r"unsubscribe|abmelden|désabonn|view (?:it|this|in|online)|trouble (?:viewing|reading)|im browser", re.IGNORECASE
)
"""Boilerplate above and below newsletters, in the forms that need it."""
_MAX_STOCK_LINE_CHARACTERS = 150
_MAX_OWN_LINES = 200
"""A form with more own lines is another message."""
_FIELD = compile_bounded(rb"\A([!-9;-~]++)[ \t]*+:")
_KNOWN_FIELD = compile_bounded(
    rb"\A(?:from|to|cc|bcc|date|subject|sender|reply-to|message-id|mime-version|in-reply-to|references|received|"
    rb"return-path|content-[a-z-]{1,40}|x-[a-z-]{1,40})[ \t]{0,10}:",
    re.IGNORECASE,
)
_PART_BEGINS = compile_bounded(rb"^--([^\r\n]{1,200})\r?\n(?=content-)", re.IGNORECASE | re.MULTILINE)
_BREAKS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    errors.MessageError,
)
"""What the library's header parsers raise on unexpected input."""
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")

_Part = Message
"""Any part of the tree. The library's older class, which keeps headers raw, and fails on none."""


ReadAttached = Callable[[bytes, str, int], ExtractionResult]
"""Function that reads a file, given its bytes, its name, and the number of e-mails around it. Raises
UnreadableFileError.
"""


class MailReaderDeps(NamedTuple):
    """Functions that read the parts of an e-mail. Both raise UnreadableFileError."""

    inline: Callable[[bytes, str, str | None], ExtractionResult]
    """Reads text of the message: its bytes, its type, such as `text/html`, and its declared charset."""
    attached: ReadAttached


def extract_email(content: bytes, readers: MailReaderDeps, depth: int = 0) -> ExtractionResult:
    """Extract headers and message without a place, then each readable attachment; the others are listed.

    Raises:
        UnreadableFileError: it is nested in too many e-mails.
    """
    if depth > MAX_NESTED_EMAILS:
        raise UnreadableFileError(f"nested more than {MAX_NESTED_EMAILS} e-mails deep; submit this e-mail separately")
    content = content.removeprefix(b"\xef\xbb\xbf").lstrip()
    messages = [*_messages(content)] if FROM_LINE.match(content) else []
    return _mailbox(messages, readers, depth) if len(messages) > 1 else _message(content, readers, depth)


def _message(content: bytes, readers: MailReaderDeps, depth: int) -> ExtractionResult:
    try:
        return _extract(_parsed(content), readers, depth)
    except RecursionError as error:
        raise UnreadableFileError("the parts of the e-mail are nested too deeply") from error


_HEADER_FOLLOWS = compile_bounded(rb"\A[!-9;-~]{1,100}[ \t]*+:")
_POSTMARK = compile_bounded(
    rb"\AFrom [ \t]{0,3}[^\s]{1,300}[ \t]{1,3}(?:mon|tue|wed|thu|fri|sat|sun),?[ \t]{1,3}"
    rb"(?:[a-z]{3}[ \t]{1,3}\d{1,2}|\d{1,2}[ \t]{1,3}[a-z]{3})[ \t][^\r\n]{0,30}\d:\d\d",
    re.IGNORECASE,
)
"""The first line of a message as programs write it: who sent it (an address, MAILER-DAEMON), and when."""
_TIME = compile_bounded(rb"\d:\d\d")
_QUOTED_FROM = compile_bounded(rb"^>(?=>*From )", re.MULTILINE)


def _messages(content: bytes) -> Iterator[bytes]:
    """Yield the messages of a mailbox: each begins with its own line, followed by headers.

    Most programs write an empty line before it. Otherwise it must look as programs write it: a text may say "From 5 to
    7 June 2009" at the beginning of a line.
    """
    begins = [
        line.start()
        for line in FROM_LINE.finditer(content)
        if _HEADER_FOLLOWS.match(content[line.end() : line.end() + 200])
        and (
            not line.start() or _POSTMARK.match(line[0]) or (_TIME.search(line[0]) and _is_apart(content, line.start()))
        )
    ]
    for begin, end in pairwise([*begins, len(content)]):
        yield _QUOTED_FROM.sub(b"", content[begin:end])


def _is_apart(content: bytes, at: int) -> bool:
    """Whether a line follows an empty one."""
    return content[max(0, at - 3) : at].endswith((b"\n\n", b"\n\r\n"))


def _mailbox(messages: Sequence[bytes], readers: MailReaderDeps, depth: int) -> ExtractionResult:
    """Extract every message under its own number; an unreadable one does not affect the others."""
    parts: list[DocumentPart] = []
    left_out: list[SkippedItem] = []
    for number, content in enumerate(messages, 1):
        section = f"section {number}"
        try:
            extract = _message(content, readers, depth)
        except UnreadableFileError as unreadable:
            left_out.append(SkippedItem(name=section, reason=str(unreadable)))
            continue
        parts += [DocumentPart(f"{place} of {section}" if place else section, text) for place, text in extract.parts]
        left_out += [
            SkippedItem(name=f"{item.name} of {section}", reason=item.reason) for item in extract.skipped_items
        ]
    return ExtractionResult(parts, left_out)


def _parsed(content: bytes) -> _Part:
    return message_from_bytes(content, policy=policy.compat32)


def _extract(message: _Part, readers: MailReaderDeps, depth: int) -> ExtractionResult:
    message, left_out = _repaired(message)
    contents = _Walk(readers).collect_repaired_contents(message)
    parts = [DocumentPart("", text) for text in ("\n".join(_headers(message)), *contents.texts)]
    left_out += contents.skipped_items
    for number, file in enumerate(contents.files, 1):
        name = _name(file, number)
        try:
            extract = _file_extract(file, name, readers, depth + 1)
        except UnreadableFileError as unreadable:
            left_out.append(SkippedItem(name=_within("", name), reason=str(unreadable)))
            continue
        if not extract.skipped_items and not any(part.text.strip() for part in extract.parts):
            left_out.append(SkippedItem(name=_within("", name), reason="empty"))
        parts += [DocumentPart(_within(part.place, name), part.text) for part in extract.parts]
        left_out += [SkippedItem(name=_within(item.name, name), reason=item.reason) for item in extract.skipped_items]
    return ExtractionResult(parts, left_out)


def _file_extract(file: _Part, name: str, readers: MailReaderDeps, depth: int) -> ExtractionResult:
    """Extract an attached file. Raises UnreadableFileError."""
    kind = file.get_content_type()
    if kind in _SIGNATURES:
        raise UnreadableFileError("a signature, which has no text")
    if kind in _NO_READER:
        raise UnreadableFileError("code, which readers of the message do not see")
    content = _content(file)
    if kind in _ENCRYPTED or content.lstrip().startswith(b"-----BEGIN PGP MESSAGE-----"):
        raise UnreadableFileError("encrypted, or inside a signature; save the message decrypted and unsigned")
    if kind in _OUTLOOK:
        raise UnreadableFileError("in an Outlook format; ask the sender for HTML or plain text")
    # Other pictures of messages are logos and decoration.
    is_scan = file.get_content_disposition() == "attachment" and is_picture(content)
    if file.get_content_maintype() in _SELDOM_TEXT and not is_scan and not is_utf8(content):
        raise UnreadableFileError("binary, not text")
    if kind not in _MESSAGES:
        return readers.attached(content, name, depth)
    inner = _inner(file)
    if inner is None:
        return extract_email(content, readers, depth)
    if depth > MAX_NESTED_EMAILS:
        raise UnreadableFileError(f"nested more than {MAX_NESTED_EMAILS} e-mails deep; submit this e-mail separately")
    return _extract(inner, readers, depth)


class _Contents(NamedTuple):
    """Contents of a part and all its subparts, in order."""

    texts: Sequence[str] = ()
    files: Sequence[_Part] = ()
    skipped_items: Sequence[SkippedItem] = ()


def _joined(contents: Iterable[_Contents]) -> _Contents:
    lists = [*contents]
    return _Contents(
        [text for item in lists for text in item.texts],
        [file for item in lists for file in item.files],
        [left_out for item in lists for left_out in item.skipped_items],
    )


class _Walk:
    """Walks the tree of one e-mail, without e-mails that are attached to it."""

    def __init__(self, readers: MailReaderDeps) -> None:
        self._inline = readers.inline

    def contents(self, part: _Part) -> _Contents:
        """Collect the texts of a part that a reader sees in sequence, and its files."""
        part, broken = _repaired(part)
        return _joined((_Contents(skipped_items=broken), self.collect_repaired_contents(part)))

    def collect_repaired_contents(self, part: _Part) -> _Contents:
        """Collect the contents of a part after its repair."""
        kind = part.get_content_type()
        if part.is_multipart() and part.get_content_maintype() == "multipart":
            children = _children(part)
            inside = self._alternatives(children) if kind == "multipart/alternative" else self._all(children)
            return _joined([self._around(part.preamble, "before"), inside, self._around(part.epilogue, "after")])
        if part.is_multipart() and kind not in _MESSAGES:
            return self._fields(part)
        if _is_inline(part, kind):
            return self._text(part, kind)
        return _Contents(files=[part])

    def _all(self, parts: Iterable[_Part]) -> _Contents:
        return _joined(self.contents(part) for part in parts)

    def _alternatives(self, parts: Sequence[_Part]) -> _Contents:
        """Collect the alternatives that say something the others do not; every file, in whichever of them it is."""
        forms = [self.contents(part) for part in parts]
        texts = ["\n\n".join(form.texts).strip() for form in forms]
        usual = [text for text, part in zip(texts, parts, strict=True) if part.get_content_type() not in _SPARE_FORMS]
        kept = [text for text in (usual if any(usual) else texts) if text]
        dropped: list[str] = []
        for text in reversed(kept[:]):
            others = [*kept]
            others.remove(text)
            if any(_says(other, text) for other in others):
                kept = others
                dropped.append(text)
        own = [lines for text in reversed(dropped) if (lines := _own_lines(text, kept))]
        return _joined([_Contents(texts=[*kept, *own]), *(form._replace(texts=()) for form in forms)])

    def _around(self, text: str | None, where: str) -> _Contents:
        """Collect text outside all parts: more parts, if a nested one has the same boundary, or nothing."""
        content = (text or "").encode("utf-8", "surrogateescape")
        found: list[_Contents] = []
        while (begin := _PART_BEGINS.search(content)) is not None and (
            more := _split(content, begin[1])
        ).is_multipart():
            found.append(self._all(_children(more)))
            text = more.epilogue or ""
            content = text.encode("utf-8", "surrogateescape")
        return _joined([*found, self._outside(text or "", where)])

    def _outside(self, text: str, where: str) -> _Contents:
        if not text.strip() or (len(text) < _MAX_STOCK_CHARACTERS and _STOCK.search(text)):
            return _Contents()
        return _Contents(skipped_items=[SkippedItem(name=f"text {where} the parts of the message", reason=_UNSHOWN)])

    def _fields(self, part: _Part) -> _Contents:
        """Collect machine-readable fields about messages, as in the report of a failed delivery."""
        encoded = _decoded_base64(part)
        blocks = _children(part) if encoded is None else [_parsed(encoded)]
        found: list[_Contents] = []
        for block in blocks:
            fields = [f"{name}: {_shown(name, value)}" for name, value in block.raw_items()]
            found += [_Contents(texts=["\n".join(fields)]), self.contents(block)]
        return _joined(found)

    def _text(self, part: _Part, kind: str) -> _Contents:
        content = _content(part)
        name = _file_name(part)
        broken: list[SkippedItem] = []
        try:
            extract = self._inline(content, kind, _charset(part))
        except UnreadableFileError as unreadable:
            # Most of it may still be readable.
            extract = self._inline(content.decode("utf-8", "replace").encode(), kind, "utf-8")
            broken.append(
                SkippedItem(
                    name=f"undecodable characters of {name or 'the message'} (shown as �)", reason=str(unreadable)
                )
            )
        said = "\n\n".join(text for _, text in extract.parts if text.strip())
        return _Contents([f"{name}:\n{said}" if name and said else said], [], [*extract.skipped_items, *broken])


def _children(part: _Part) -> list[_Part]:
    payload: object = part.get_payload()
    return [child for child in cast("list[object]", payload) if isinstance(child, Message)]


def _is_inline(part: _Part, kind: str) -> bool:
    """Whether a leaf is text of the message, not an attached file."""
    if part.get_content_maintype() == "multipart":
        # None of its boundaries was found.
        return True
    if part.get_content_maintype() != "text" or kind in _NO_READER or part.get_content_disposition() == "attachment":
        return False
    if kind not in {"text/plain", "text/html"} and _file_name(part):
        return False
    return b"\0" not in _content(part)[:HEAD_BYTES] or "16" in (charset := _charset(part) or "") or "32" in charset


def _says(form: str, other: str) -> bool:
    """Whether one form of a message says what another does, as far as words and marks show."""
    words = set(_words(other))
    missing = words.difference(_words(form))
    if any(any(sign.isdigit() or sign in "^~" for sign in word) for word in missing):
        return False
    return len(missing) <= max(_MAX_OTHER_WORDS, len(words) // 10)


def _own_lines(text: str, forms: Sequence[str]) -> str:
    """Return the lines of a form with words that no other has as often, except link texts; empty if there are none.

    A single word may reverse the meaning: "not free of charge".
    """
    told = [[*_words(form)] for form in forms]
    known: Counter[str] = Counter()
    for words in told:
        known |= Counter(words)
    own = Counter(_words(_LINK_TEXT.sub(" ", text))) - known
    if not own:
        return ""
    flat = [f" {' '.join(words)} " for words in told]
    found: list[str] = []
    for line in text.split("\n"):
        words = [*_words(_LINK_TEXT.sub(" ", line))]
        is_stock = len(line) < _MAX_STOCK_LINE_CHARACTERS and _STOCK_LINE.search(line)
        if own.keys().isdisjoint(words) or is_stock:
            continue
        if len(found) == _MAX_OWN_LINES:
            return text
        # Lines break elsewhere in another form.
        if not any(f" {' '.join(words)} " in one for one in flat):
            found.append(line.strip())
    return "\n".join(["Only in the other version of the message (plain text or HTML):", *found]) if found else ""


def _words(text: str) -> Iterator[str]:
    found = (word.strip("_") for word in _WORD.findall(_ADDRESS.sub(" ", text).casefold()))
    return filter(None, found)


def _headers(message: _Part) -> list[str]:
    """Return the lines of the headers that are shown."""
    found = [*message.raw_items()]
    return [
        f"{wanted}: {value}"
        for wanted in EMAIL_HEADERS
        for name, raw in found
        if name.lower() == wanted.lower() and (value := _shown(name, raw))
    ]


def _shown(name: str, raw: object) -> str:
    """Return the value of a header; as written if the library's parsers fail on it."""
    value = " ".join(_recovered(str(raw)).split())
    shown = value
    for parser in (_structured, _encoded_words):
        try:
            shown = parser(name, value)
            break
        except _BREAKS:
            continue
    return " ".join(shown.translate(_SURROGATES).split())


def _structured(name: str, value: str) -> str:
    if len(value) > _MAX_HEADER_CHARACTERS:
        return _encoded_words(name, value)
    return str(policy.default.header_factory(name, value))


def _encoded_words(_: str, value: str) -> str:
    return str(make_header(decode_header(value)))


def _recovered(value: str) -> str:
    """Decode a header that contains raw non-ASCII bytes in their most likely encoding."""
    content = value.encode("utf-8", "surrogateescape")
    text = content.decode("utf-8", "replace")
    foreign = sum(sign > "\x7f" for sign in text)
    return text if 2 * text.count("\ufffd") <= foreign - (foreign == 1) else content.decode("latin-1")


def _name(file: _Part, number: int) -> str:
    name = _file_name(file) or f"number {number}"
    if file.get_content_type() in _MESSAGES and not name.endswith(".eml"):
        name += ".eml"
    return name if len(name) <= MAX_ATTACHMENT_NAME_CHARACTERS else f"…{name[1 - MAX_ATTACHMENT_NAME_CHARACTERS :]}"


def _file_name(part: _Part) -> str:
    """Return the name of a part; empty if it has none."""
    named = Message()
    for header in ("Content-Disposition", "Content-Type"):
        for name, value in part.raw_items():
            if name.lower() == header.lower():
                named[header] = _recovered(str(value))
    try:
        return _shown("Subject", named.get_filename() or "")
    except (ValueError, LookupError, TypeError):
        return ""


def _charset(part: _Part) -> str | None:
    try:
        return part.get_content_charset()
    except (ValueError, LookupError, TypeError):
        return None


def _content(part: _Part) -> bytes:
    """Return the bytes of a leaf, or of the e-mail in it."""
    if not part.is_multipart():
        payload = part.get_payload(decode=True)
        return payload if isinstance(payload, bytes) else b""
    encoded = _decoded_base64(part)
    return encoded if encoded is not None else b"".join(_as_written(child) for child in _children(part))


def _inner(file: _Part) -> _Part | None:
    """Return the e-mail that was parsed with the outer one; None if it was not, since it is encoded."""
    return None if _decoded_base64(file) is not None else next(iter(_children(file)), None)


def _decoded_base64(part: _Part) -> bytes | None:
    """Return the bytes of a message that is base64-encoded against the rules; None if it is not."""
    said = str(part.get("Content-Transfer-Encoding", "")).strip().lower()
    if said != "base64" or not part.is_multipart() or any(child.keys() for child in _children(part)):
        return None
    try:
        return b64decode(b"".join(b"".join(_as_written(child).split()) for child in _children(part)), validate=True)
    except ValueError:
        return None


def _as_written(part: _Part) -> bytes:
    file = BytesIO()
    BytesGenerator(file, mangle_from_=False, maxheaderlen=0, policy=policy.compat32).flatten(part)
    return file.getvalue()


def _repaired(part: _Part) -> tuple[_Part, list[SkippedItem]]:
    """Return a part with completely parsed headers and subparts, and what had to be dropped for that."""
    broken: list[SkippedItem] = []
    if any(isinstance(defect, errors.MissingHeaderBodySeparatorDefect) for defect in part.defects):
        part, broken = _without_broken_headers(part)
    if not part.is_multipart():
        _split_again(part)
    return part, broken


def _split_again(part: _Part) -> None:
    """Split a part again that is declared as multipart, or as nothing, and whose declared boundary does not occur."""
    said = " ".join(str(value) for value in part.get_all("Content-Type", [])).lower()
    if said and "multipart" not in said:
        return
    content = _content(part)
    begin = _PART_BEGINS.search(content)
    if begin is None or not (said or b"\n--%b--" % begin[1].strip() in content):
        return
    again = _split(content, begin[1])
    if again.is_multipart():
        del part["Content-Type"]
        part["Content-Type"] = "multipart/alternative" if "alternative" in said else "multipart/mixed"
        part.set_payload(again.get_payload())
        part.preamble, part.epilogue = again.preamble, again.epilogue


def _split(content: bytes, boundary: bytes) -> _Part:
    return _parsed(b'Content-Type: multipart/mixed; boundary="%b"\n\n%b' % (boundary.strip(), content))


def _without_broken_headers(part: _Part) -> tuple[_Part, list[SkippedItem]]:
    """Remove broken headers, from which the library takes everything, including further headers and parts, as text."""
    payload = part.get_payload()
    if not isinstance(payload, str):
        return part, []
    lines = payload.encode("utf-8", "surrogateescape").splitlines(keepends=True)
    end = next((at for at, line in enumerate(lines) if not line.strip()), len(lines))
    last = max((at for at, line in enumerate(lines[:end]) if _KNOWN_FIELD.match(line)), default=-1)
    if last < 0:
        return part, []
    kept: list[bytes] = []
    gone: list[bytes] = []
    is_field = False
    for line in lines[: last + 1]:
        field = _FIELD.match(line)
        is_field = field is not None or (line[:1] in b" \t" and is_field)
        (kept if is_field else gone).append(b"%b:%b" % (field[1], line[field.end() :]) if field else line)
    headers = b"".join(
        b"%b: %b\n" % (name.encode("utf-8", "surrogateescape"), str(value).encode("utf-8", "surrogateescape"))
        for name, value in part.raw_items()
    )
    again = _parsed(headers + b"".join(kept) + b"".join(lines[last + 1 :]))
    if not gone:
        return again, []
    shown = "; ".join(_recovered(line.decode("utf-8", "surrogateescape")).strip()[:60] for line in gone)
    name = f"header line “{shown.translate(_SURROGATES)}”"
    return again, [SkippedItem(name=name, reason="not a valid header")]


def _within(place: str, name: str) -> str:
    return f"{place} of attachment {name}" if place else f"attachment {name}"
