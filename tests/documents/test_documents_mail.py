"""E-mails: every part of the tree is in the text, named as left out, or another form of what is in the text."""

from email.message import EmailMessage, Message
from email.mime.application import MIMEApplication
from email.mime.base import MIMEBase
from email.mime.message import MIMEMessage
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.documents.test_documents_formats import read_document_file
from waystation.documents.readers.formats import extract_file

HEAD = b"From: a@example.com\nTo: b@example.com\nSubject: Offer\nMIME-Version: 1.0\n"


def mail(*parts: bytes, kind: str = "multipart/mixed", boundary: str = "outer") -> bytes:
    """A message of parts, each with its headers."""
    return HEAD + part(*parts, kind=kind, boundary=boundary)


def part(*parts: bytes, kind: str, boundary: str) -> bytes:
    """A part of parts."""
    return b'Content-Type: %b; boundary="%b"\n\n%b--%b--\n' % (
        kind.encode(),
        boundary.encode(),
        b"".join(b"--%b\n%b\n" % (boundary.encode(), one) for one in parts),
        boundary.encode(),
    )


def text(said: str, kind: str = "text/plain", more: str = "") -> bytes:
    """A leaf of text."""
    return f"Content-Type: {kind}; charset=utf-8\n{more}\n{said}\n".encode()


def attached(said: str, name: str) -> bytes:
    """A leaf that is a file."""
    return text(said, "text/csv", f'Content-Disposition: attachment; filename="{name}"\n')


SIGNATURE = b"Content-Type: application/pkcs7-signature; name=smime.p7s\n\nMIIBAAAA\n"
TOO_DEEP = "more than 3 e-mails deep"


def test_a_signed_message_is_read_with_its_attachments(tmp_path: Path) -> None:
    inner = part(text("See our offer."), attached("pump,1250", "offer.csv"), kind="multipart/mixed", boundary="inner")
    shown, left_out = read_document_file(tmp_path, "a.eml", mail(inner, SIGNATURE, kind="multipart/signed"))
    assert shown.endswith("\n\nSee our offer.\n\n[attachment offer.csv]\npump,1250")
    assert left_out == ["attachment smime.p7s: a signature, which has no text"]


def test_the_message_is_all_its_inline_texts_in_order(tmp_path: Path) -> None:
    page = text("<p>We migrate on 12 May.</p>", "text/html")
    footer = text("Unsubscribe here", more="Content-Disposition: inline\n")
    named = text("Second thoughts", more='Content-Disposition: inline; filename="notes.txt"\n')
    shown, left_out = read_document_file(tmp_path, "a.eml", mail(page, attached("a,b", "a.csv"), named, footer))
    assert shown.partition("Offer\n\n")[2] == (
        "We migrate on 12 May.\n\nnotes.txt:\nSecond thoughts\n\nUnsubscribe here\n\n[attachment a.csv]\na,b"
    )
    assert not left_out


def test_a_bounce_says_why_the_message_came_back(tmp_path: Path) -> None:
    status = b"Content-Type: message/delivery-status\n\nReporting-MTA: dns; mx\n\nStatus: 5.2.2\nAction:\n failed\n"
    returned = b"Content-Type: message/rfc822\n\nFrom: b@example.com\nSubject: Order\n\nTen pumps.\n"
    shown, _ = read_document_file(
        tmp_path, "a.eml", mail(text("Not delivered."), status, returned, kind="multipart/report")
    )
    assert shown.partition("Offer\n\n")[2] == (
        "Not delivered.\n\nReporting-MTA: dns; mx\n\nStatus: 5.2.2\nAction: failed\n\n"
        "[attachment number 1.eml]\nFrom: b@example.com\nSubject: Order\n\nTen pumps."
    )


def test_each_message_of_a_digest_is_read_with_its_attachments(tmp_path: Path) -> None:
    files = part(text("One."), attached("x,1", "x.csv"), kind="multipart/mixed", boundary="in")
    letters = [b"\nSubject: first\n" + files, b"\nSubject: second\n\nTwo.\n"]
    shown, _ = read_document_file(
        tmp_path, "a.eml", mail(text("Digest"), part(*letters, kind="multipart/digest", boundary="d"))
    )
    assert "[attachment number 1.eml]\nSubject: first\n\nOne." in shown
    assert "[attachment x.csv of attachment number 1.eml]\nx,1" in shown
    assert "[attachment number 2.eml]\nSubject: second\n\nTwo." in shown


def test_attachments_within_a_form_of_the_message_are_read(tmp_path: Path) -> None:
    rich = part(
        text("<p>See the offer.</p>", "text/html"),
        attached("pump,1250", "offer.csv"),
        kind="multipart/mixed",
        boundary="r",
    )
    shown, _ = read_document_file(tmp_path, "a.eml", mail(text("See the offer."), rich, kind="multipart/alternative"))
    assert shown.count("See the offer.") == 1
    assert shown.endswith("[attachment offer.csv]\npump,1250")


@pytest.mark.parametrize(
    ("plain", "page", "expected"),
    [
        ("All of it.", "<p>All <b>of</b> it.</p>", ["All of it."]),
        ("", "<p>Only here.</p>", ["Only here."]),
        ("It costs 4200.", "<p>It costs 4300.</p>", ["It costs 4200.", "It costs 4300."]),
        (
            "Your program does not show pages.",
            "<p>We migrate on 12 May.</p>",
            ["Your program does not show pages.", "We migrate on 12 May."],
        ),
        (
            "Dear Ann,\nthe delivery is free of\ncharge. It is not late.",
            "<p>Dear Ann,</p><p>the delivery is not free of charge. It is not late.</p>",
            [
                "Dear Ann,\nthe delivery is free of\ncharge. It is not late.",
                "Only in the other version of the message (plain text or HTML):\n"
                "the delivery is not free of charge. It is not late.",
            ],
        ),
        (
            "Dear Ann,\nthe offer:\nhttps://example.com/offer *now*",
            "<p>Dear Ann, the <b>offer:</b> <a href=https://example.com/offer>Read more</a> now</p><p>Unsubscribe</p>",
            ["Dear Ann,\nthe offer:\nhttps://example.com/offer *now*"],
        ),
    ],
)
def test_forms_of_a_message_that_say_the_same_are_read_once(
    tmp_path: Path, plain: str, page: str, expected: list[str]
) -> None:
    content = mail(text(plain), text(page, "text/html"), kind="multipart/alternative")
    assert read_document_file(tmp_path, "a.eml", content)[0].split("\n\n")[1:] == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ("To: unlisted-recipients:; (no To-header on input)", "To: unlisted-recipients:; (no To-header on input)"),
        ("To: =?broken?x?=, <<a@b", "To: "),
        ("Date: Fri, 99 Foo 20211 25:61:61 +9999", "Date: Fri, 99 Foo 20211 25:61:61 +9999"),
        ("Cc: Größe <a@example.com>", "Cc: Größe <a@example.com>"),
        ("Cc: " + "(" * 3_000, "Cc: ((("),
        ("this line is no header", "Subject: Budget"),
        ("Cc  : c@example.com", "Cc: c@example.com"),
    ],
)
def test_a_broken_header_costs_no_more_than_itself(tmp_path: Path, headers: str, expected: str) -> None:
    below = b"Subject: Budget\n" + part(
        text("It is 4200 euros."), attached("a,1", "a.csv"), kind="multipart/x", boundary="b"
    )
    shown, _ = read_document_file(tmp_path, "a.eml", b"From: a@example.com\n" + headers.encode() + b"\n" + below)
    assert f"\n{expected}" in shown
    assert "\nSubject: Budget" in shown
    assert shown.endswith("\n\nIt is 4200 euros.\n\n[attachment a.csv]\na,1")


def test_a_line_that_is_no_header_is_named(tmp_path: Path) -> None:
    content = b"From: a@example.com\nno header at all\nSubject: Budget\n\nIt is 4200 euros.\n"
    assert read_document_file(tmp_path, "a.eml", content) == (
        "From: a@example.com\nSubject: Budget\n\nIt is 4200 euros.",
        ["header line “no header at all”: not a valid header"],
    )


@pytest.mark.parametrize(
    "kind",
    [
        "multipart/mixed",
        "multipart/mixed; boundary=other",
        "multipart; boundary=x",
        'multipart/mixed; boundary="x',
        "multipart/mixed boundary=x",
    ],
)
def test_parts_are_found_though_the_header_that_says_where_is_broken(tmp_path: Path, kind: str) -> None:
    parts = b"--x\n" + text("It is 4200 euros.") + b"\n--x\n" + attached("a,1", "a.csv") + b"\n--x--\n"
    shown, _ = read_document_file(tmp_path, "a.eml", HEAD + f"Content-Type: {kind}\n\n".encode() + parts)
    assert shown.endswith("\n\nIt is 4200 euros.\n\n[attachment a.csv]\na,1")


def test_parts_behind_the_end_of_one_with_the_same_boundary_are_found(tmp_path: Path) -> None:
    inner = part(text("Short."), kind="multipart/alternative", boundary="outer")
    shown, left_out = read_document_file(
        tmp_path, "a.eml", mail(inner, attached("a,1", "a.csv")) + inner + b"--outer\n" + text("Late.")
    )
    assert "Short." in shown
    assert shown.endswith("[attachment a.csv]\na,1")
    assert "\n\nLate." in shown
    assert not left_out


def test_what_stands_outside_of_the_parts_is_named(tmp_path: Path) -> None:
    content = (
        mail(text("Inside.")).replace(b"\n\n--outer\n", b"\n\nThe true price is 7.\n--outer\n", 1) + b"Pay twice.\n"
    )
    shown, left_out = read_document_file(tmp_path, "a.eml", content)
    assert "price" not in shown
    assert left_out == [
        f"text {where} the parts of the message: no mail program shows it" for where in ("before", "after")
    ]


def test_an_email_that_is_encoded_within_another_is_read(tmp_path: Path) -> None:
    inner = MIMEBase("message", "rfc822")
    inner.set_payload("U3ViamVjdDogSW5uZXIKClRlbiBwdW1wcy4K")
    inner["Content-Transfer-Encoding"] = "base64"
    shown, _ = read_document_file(tmp_path, "a.eml", mail(text("See below."), bytes(inner)))
    assert shown.endswith("[attachment number 1.eml]\nSubject: Inner\n\nTen pumps.")


def test_text_in_no_known_encoding_is_read_as_far_as_it_can_be(tmp_path: Path) -> None:
    noise = bytes(range(128, 256)) * 8
    shown, left_out = read_document_file(
        tmp_path, "a.eml", HEAD + b"\nThe budget is 4200 euros.\n" + noise + b"\nThanks\n"
    )
    assert "The budget is 4200 euros." in shown
    assert "Thanks" in shown
    assert all("shown as" in one for one in left_out)


@pytest.mark.parametrize("charset", ["undefined", "idna", "hex", "no-such-thing", "utf-8\0"])
def test_a_charset_that_is_none_costs_nothing(tmp_path: Path, charset: str) -> None:
    content = HEAD + f'Content-Type: text/plain; charset="{charset}"\n\nGröße\n'.encode()
    assert read_document_file(tmp_path, "a.eml", content)[0].endswith("\n\nGröße")


def test_a_page_that_a_browser_saved_is_read(tmp_path: Path) -> None:
    content = mail(text("<p>A page</p>", "text/html"), text("p {color: red}", "text/css"), kind="multipart/related")
    content = content.removeprefix(HEAD)
    assert read_document_file(tmp_path, "a.mht", content) == (
        "A page",
        ["attachment number 1: code, which readers of the message do not see"],
    )


class Tree(NamedTuple):
    """A part, and the leaves in it: those of the message, and files."""

    part: Message
    texts: list[str]
    files: list[str]
    forms: list[list[str]]
    """Texts of which one at least must be there."""


words = st.integers(0, 10**9).map(lambda number: f"Leaf {number}.")


def inline(said: str, kind: str) -> Tree:
    body = f"<p>{said}</p>" if kind == "html" else said
    return Tree(MIMEText(body, kind), [said], [], [])


def file(said: str, name: str, is_binary: bool) -> Tree:
    leaf = MIMEApplication(b"\0\1\2" if is_binary else said.encode())
    leaf.add_header("Content-Disposition", "attachment", filename=name)
    return Tree(leaf, [], [name if is_binary else said], [])


def joined(kind: str, children: list[Tree]) -> Tree:
    whole = MIMEMultipart(kind)
    for child in children:
        whole.attach(child.part)
    texts = [text for child in children for text in child.texts]
    files = [file for child in children for file in child.files]
    forms = [form for child in children for form in child.forms]
    if kind == "alternative":
        return Tree(whole, [], files, [*forms, texts] if texts else forms)
    return Tree(whole, texts, files, forms)


def forwarded(inner: Tree) -> Tree:
    whole = EmailMessage()
    whole["Subject"] = "inner"
    wrapped = MIMEMessage(inner.part)
    return Tree(wrapped, [], [*inner.texts, *inner.files], inner.forms)


leaves = st.builds(inline, words, st.sampled_from(["plain", "html"])) | st.builds(
    file, words, st.from_regex(r"[a-z]{3,9}\.(csv|txt|md)", fullmatch=True), st.booleans()
)
kinds = st.sampled_from(["mixed", "related", "alternative", "signed", "report", "parallel", "unheard-of"])
trees = st.recursive(
    leaves,
    lambda inner: st.builds(joined, kinds, st.lists(inner, min_size=1, max_size=4)) | inner.map(forwarded),
    max_leaves=12,
)


@given(tree=trees)
def test_every_leaf_is_in_the_text_or_named_or_another_form_of_one_that_is(tree: Tree) -> None:
    tree.part["From"], tree.part["Subject"] = "a@example.com", "Everything"
    found = extract_file(tree.part.as_bytes(), "a.eml")
    shown = "\n".join(f"{place}\n{said}" for place, said in found.parts)
    named = "\n".join(f"{one.name}: {one.reason}" for one in found.skipped_items)
    for leaf in [*tree.texts, *tree.files]:
        assert leaf in shown or leaf in named or TOO_DEEP in named
    for form in tree.forms:
        assert any(text in shown for text in form) or TOO_DEEP in named
    message = "\n".join(said for place, said in found.parts if not place)
    at = 0
    for text in tree.texts:
        at = message.find(text, at)
        assert at >= 0


def test_a_mailbox_is_read_message_by_message() -> None:
    encoded = b"Content-Transfer-Encoding: base64\nContent-Type: text/plain\n\nVGhlIGJ1ZGdldCBpcyA0MjAwIGV1cm9zLg==\n"
    offer = mail(
        text("See the offer."), text("pump,1250", "text/csv", 'Content-Disposition: attachment; filename="o.csv"\n')
    )
    begins = (b"From a@example.com Mon Jun 01 04:28:28 2009\n", b"From b@example.com  Tue Jun  2 04:28:28 2009 +0200\n")
    said = b"Content-Type: text/plain\n\nWe agree.\n\nFrom the start of 2009\nwe pay.\n>From now on.\n"
    content = b"\n".join([begins[0] + HEAD + encoded, begins[1] + offer, begins[0] + HEAD + said])
    for name in ("a.mbox", "archive", "a.eml"):
        read = extract_file(
            content if name != "archive" else content.replace(b"MIME-Version", b"Message-ID: <a>\nX"), name
        )
        assert [part.place for part in read.parts] == [
            *("section 1", "section 1", "section 2", "section 2"),
            *("attachment o.csv of section 2", "section 3", "section 3"),
        ]
        texts = [part.text.strip() for part in read.parts]
        assert texts[1] == "The budget is 4200 euros."
        assert texts[4] == "pump,1250"
        assert texts[6] == "We agree.\n\nFrom the start of 2009\nwe pay.\nFrom now on."


def test_messages_of_a_mailbox_without_empty_lines_between_them_are_told_apart() -> None:
    def message(postmark: str, said: str) -> bytes:
        return f"{postmark}\n".encode() + HEAD + f"Content-Type: text/plain\n\n{said}\n".encode()

    quoted = ">From c@example.com Mon Jun  1 04:28:28 2009\nSubject: Old"
    sentence = "From 1 June 2009\nNote: the price is fixed.\nFrom a@example.com I heard in 2009\nOffer: none."
    content = b"".join(
        [
            message("From a@example.com Sun Jul 16 15:06:25 2023", quoted),
            message("From MAILER-DAEMON Fri, 16 Jul 2023 15:06:25 +0200 2023", sentence),
            message("From b@example.com Sun Jul 16 15:07:25 2023", "The cap is 4242 euros."),
        ]
    )
    for ends in (b"\n", b"\r\n"):
        read = extract_file(content.replace(b"\n", ends), "a.mbox")
        said = [part.text.replace("\r", "").strip() for part in read.parts if "Subject: Offer" not in part.text]
        assert said == [quoted.removeprefix(">"), sentence, "The cap is 4242 euros."]
        assert {part.place for part in read.parts} == {"section 1", "section 2", "section 3"}
