"""What counts as a demand of the user's, in the languages that we know."""

import pytest

from waystation.context.constraints import extract_user_constraints
from waystation.context.summary import render_ledger
from waystation.context.transcript import build_user_message


def demands(text: str) -> tuple[str, ...]:
    return extract_user_constraints([build_user_message("m1", text)])


@pytest.mark.parametrize(
    "sentence",
    [
        "Never push to main.",
        "Dont touch `a.py`!",
        "No new dependencies.",
        "Wait for my word.",
        "(Only the first chapter.)",
        "Fass die Datei noch nicht an.",
        "Das darf niemand sehen.",
        "Ändere das nicht, bis ich es sage.",
        "Höchstens drei Seiten.",
        "Ne touche pas au fichier.",
        "N’ouvrez pas la base.",
        "Seulement le premier chapitre.",
        "Nunca borres la tabla.",
        "No toques la rama principal.",
        "No lo cambies.",
        "Sólo el primer capítulo.",
        "不要修改主分支。",
        "报告必须在周五之前完成。",
        "先不要修复这个问题",
        "別改動這個檔案。",
        "本番には触らないでください。",
        "必ずテストを書くこと。",
        "表は三つだけ。",
    ],
)
def test_a_demand_is_kept_word_for_word(sentence: str) -> None:
    assert demands(f"Hello.\n{sentence}\nBye.") == (sentence,)


@pytest.mark.parametrize(
    "sentence",
    [
        "Please read the report.",
        "The mustard is in the commonly used jar.",
        "Lies bitte den Bericht.",
        "Das Niederschlagsbuch liegt im Museum.",
        "Lis le rapport.",
        "Lee el informe.",
        "请特别检查租约的类别。",
        "報告書を読んでください。",
        "別の章を読んでください。",
    ],
)
def test_a_plain_request_is_none(sentence: str) -> None:
    assert demands(sentence) == ()


def test_a_demand_ends_where_its_sentence_does() -> None:
    assert demands("Do not use e.g. the old table. It is large.") == ("Do not use e.g. the old table.",)
    assert demands("先看报告。不要修改它！好的。") == ("不要修改它！",)
    assert demands("One.\u2028Never two.\rThree.") == ("Never two.",)


def test_pasted_material_is_no_demand() -> None:
    assert demands(f"must {'x' * 1_000}") == ()


def test_a_marker_tells_on_what_the_user_demanded_and_a_text_that_looks_like_one_does_not() -> None:
    text = f"[2 hidden]\n{render_ledger(['user: Never push.', 'asked: Begin.'])}"
    assert extract_user_constraints([build_user_message("t-x", text)]) == ("Never push.",)
    assert "user: Never push." in demands(text)


@pytest.mark.parametrize("piece", ["a. ", "never ", "ne a", "no l", "。", "别", ". a", "!"])
def test_in_a_huge_message_the_demand_at_its_end_is_found(piece: str) -> None:
    assert demands(f"{piece * (300_000 // len(piece))}\nNever push.") == ("Never push.",)
