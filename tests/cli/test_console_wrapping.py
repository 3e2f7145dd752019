"""What is said on the way: at a terminal its lines end between words, and commands can be copied."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from waystation.cli.console import wrap_text

COMMAND = "`waystation transcript task-0123456789abcdef --agent research-1`"


def test_lines_end_between_words_and_never_in_a_command() -> None:
    said = f"name one: {COMMAND}, and nothing else is needed for it to be found again"
    assert wrap_text(said, 40).splitlines() == [
        "name one:",
        f"{COMMAND},",
        "and nothing else is needed for it to be",
        "found again",
    ]


def test_what_is_indented_or_fits_stays_as_it_is() -> None:
    for said in ("  waystation approve task-0123456789abcdef --request r1 --add 30000", "two  spaces", ""):
        assert wrap_text(said, 40) == said


def test_an_item_of_a_list_goes_on_under_its_words() -> None:
    said = "--   notifications: off; set a webhook to hear of requests"
    assert wrap_text(said, 40, hang=5).splitlines() == [
        "--   notifications: off; set a",
        "     webhook to hear of requests",
    ]


def test_one_backtick_holds_nothing_together() -> None:
    assert wrap_text("it said ` and went on to say more of it", 20).splitlines() == [
        "it said ` and went",
        "on to say more of it",
    ]


@given(said=st.text(alphabet="ab `\n世", max_size=200), width=st.integers(5, 40))
def test_no_word_is_lost_and_only_what_has_no_space_is_longer_than_the_line(said: str, width: int) -> None:
    shown = wrap_text(said, width)
    assert shown.replace("\n", " ").split() == said.replace("\n", " ").split()
    assert all(
        cell_len(line) <= width or line[:1].isspace() or "`" in line or " " not in line.strip()
        for line in shown.split("\n")
    )
