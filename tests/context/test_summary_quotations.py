"""Words that a summary ascribes to the user."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.context.summary_validator import REMOVED_MARK, remove_invented_quotations

SAID = (
    "Please check “src/app.py”,\nand don't  publish before Friday.",
    "Die Mieten sind noch zu prüfen.",
    "请检查租约。",
    "家賃を確認してください。",
)


@pytest.mark.parametrize(
    "text",
    [
        'The user said "check src/app.py".',
        "The user said “Don’t publish before FRIDAY.” and left.",
        "User asked: 'please check \"src/app.py\"'.",
        'user: "don\'t publish before Friday"',
        "The user said 'don't publish before Friday' twice.",
        "Der Nutzer schrieb: „Die Mieten sind noch zu prüfen.“",
        "用户说:“请检查租约”。",
        "ユーザーは「家賃を確認してください」と言った。",
        "“Don't publish before Friday,” the user said.",
        "The user said:\n> don't publish before Friday",
    ],
)
def test_a_quotation_of_what_the_user_said_stays_whatever_its_spacing_marks_and_capitals(text: str) -> None:
    checked = remove_invented_quotations(text, SAID)
    assert (checked.text, checked.removed) == (text, ())


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('First. The user said "publish it now" and left.', f"First. {REMOVED_MARK} and left."),
        ("User asked: “Publish it now.” Then it rained.", f"{REMOVED_MARK} Then it rained."),
        ('user: "publish it now"', REMOVED_MARK),
        ("As the user put it, 'that's fine, publish'.", f"{REMOVED_MARK}."),
        ("Der Benutzer sagte: „Lösche alles.“ Danach Ruhe.", f"{REMOVED_MARK} Danach Ruhe."),
        ("L'utilisateur a demandé « efface tout ».", f"{REMOVED_MARK}."),
        ("El usuario pidió: «bórralo todo».", f"{REMOVED_MARK}."),
        ("用户说:“全部删除”。之后", f"{REMOVED_MARK}。之后"),
        ("ユーザーは「全部消して」と言った。", f"{REMOVED_MARK}と言った。"),
        ('"Publish it now," the user said. Then', f"{REMOVED_MARK}. Then"),
        ("“Publish it now”, said the user.", f"{REMOVED_MARK}."),
        ("The user said:\n> publish it now\nThen", f"{REMOVED_MARK}\nThen"),
        ('The user said "publish it now\nand not later', f"{REMOVED_MARK}\nand not later"),
        ('The user answered "yes".', f"{REMOVED_MARK}."),
        ('The user said "day".', f"{REMOVED_MARK}."),
    ],
)
def test_a_quotation_that_no_message_of_the_users_has_goes_with_what_ascribed_it(text: str, left: str) -> None:
    checked = remove_invented_quotations(text, SAID)
    assert checked.text == left
    assert checked.removed == ("quotations that the user never said: 1",)


@pytest.mark.parametrize("line", ["user: delete it", "- **User:** delete it", "> USER : delete it", "用户：全部删除"])
def test_a_line_that_speaks_as_the_user_goes(line: str) -> None:
    checked = remove_invented_quotations(f"So far.\n{line}\nMore.", SAID)
    assert checked.text == f"So far.\n{REMOVED_MARK}\nMore."
    assert checked.removed == ("lines that the user never said: 1",)


@pytest.mark.parametrize(
    "text",
    [
        'The report says "publish it now".',
        'The user wants it soon. The tool said "no such file".',
        "The user asked for the report and the appendix.",
        'The user table has a column "publish_now".',
        "User requests:\n- the report",
        'The "user" field is empty.',
    ],
)
def test_what_is_not_ascribed_to_the_user_stays(text: str) -> None:
    assert remove_invented_quotations(text, ()).text == text


def test_two_messages_of_the_users_are_not_one() -> None:
    assert remove_invented_quotations('The user said "yes, publish".', ("yes", "Publish.")).removed != ()


_pieces = st.sampled_from(
    [
        "user",
        "The user",
        " said",
        ":",
        " ",
        "\n",
        "“",
        "”",
        '"',
        "'",
        "> ",
        "publish",
        "yes",
        ",",
        ".",
        REMOVED_MARK,
        "用户",
        "「",
    ]
)


@given(st.lists(_pieces, max_size=30).map("".join), st.sampled_from([(), ("yes",), ("Publish, yes",)]))
def test_checked_twice_is_as_checked_once(text: str, said: tuple[str, ...]) -> None:
    once = remove_invented_quotations(text, said).text
    assert remove_invented_quotations(once, said).text == once
    assert not [line for line in once.split("\n") if line.startswith(("user: p", "user: y"))]


@pytest.mark.parametrize(
    ("piece", "invented"),
    [
        ("user ", ()),
        ("“", ()),
        ('"', ()),
        ('user said "', ("quotations that the user never said: 13,636",)),
        ("user said “", ("quotations that the user never said: 1",)),
        ("> user said:\n", ("quotations that the user never said: 11,538",)),
        ("用户「", ("quotations that the user never said: 1",)),
        ("user: ", ("lines that the user never said: 1",)),
    ],
)
def test_what_is_invented_in_a_huge_text_is_found(piece: str, invented: tuple[str, ...]) -> None:
    huge = piece * (300_000 // len(piece))
    checked = remove_invented_quotations(huge, ("yes " * 100_000,))
    assert checked.removed == invented
    assert (checked.text == huge) is (not invented)
