from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from waystation.documents.claim_support import (
    MAX_READ_CHARACTERS,
    check_support,
)
from waystation.documents.support_features import SupportFeatures
from waystation.documents.support_model import SUPPORT_MODEL
from waystation.documents.support_verdicts import MissingKind, SupportVerdict, render_missing

YES, NO, UNSURE = SupportVerdict.SUPPORTED, SupportVerdict.NOT_SUPPORTED, SupportVerdict.CANNOT_TELL
Case = tuple[str, str, SupportVerdict | None, list[tuple[MissingKind, str]]]
"""Sentence, passage, verdict (None: any but not supported), and the details by kind, without wording."""

FIGURES: list[Case] = [
    ("Sales grew by 12 %.", "Sales grew by 12 percent.", YES, []),
    ("Sales grew by 12 %.", "Sales grew by 12 per cent.", YES, []),
    ("Sales grew by 12 %.", "Sales grew by 13 percent.", NO, [("figure", "12 %")]),
    ("Sales grew by 12 %.", "Sales grew by 12 units.", NO, [("figure", "12 %")]),
    ("The firm sold 12 boats.", "The firm sold 12 % of its boats.", NO, [("figure", "12")]),
    ("The share rose by 2 percentage points.", "The share rose by 2 percent.", NO, [("figure", "2 percentage points")]),
    ("Sales growth, in percent, was 12 %.", "Sales growth (in percent) | 12", YES, []),
    ("The change was −5 points.", "The change was 5 points.", NO, [("figure", "-5")]),
    ("The change was −5 points.", "The change was -5 points.", YES, []),
    ("Last year sales fell by 5 %.", "Sales changed by −5 % last year.", None, []),
    ("The net result was -340.", "The net result was (340).", YES, []),
    ("The bridge cost $5m.", "The bridge cost 5 million dollars.", YES, []),
    ("The bridge cost $5m.", "The bridge cost 5 million euros.", NO, [("figure", "$5m")]),
    ("The bridge cost $5m.", "The bridge is 5 m long and its cost is in $.", NO, [("figure", "$5m")]),
    ("The bridge cost £5 bn.", "The bridge cost 5 billion pounds.", YES, []),
    ("The bridge cost US$ 1.5 million.", "The bridge cost 1,500,000 USD.", YES, []),
    ("The bridge cost between $5 and 10 million.", "The bridge cost between $5 million and $10 million.", YES, []),
    ("Revenue was $5,123 million.", "Revenue, in millions of $: 5,123", None, []),
    ("Revenue was $5.1 billion.", "Revenue was $5,123 million.", YES, []),
    ("Revenue was $5.2 billion.", "Revenue was $5,123 million.", NO, [("figure", "$5.2 billion")]),
    ("The city has 1,234,567 people.", "The city has 1.234.567 people.", YES, []),
    ("The city has 1,234,567 people.", "The city has 1 234 567 people.", YES, []),
    ("The city has 1,234,567 people.", "The city has 1'234'567 people.", YES, []),
    ("The city has 1,234,567 people.", "The city has 12,34,567 people.", YES, []),
    ("The city has 1,234,567 people.", "The city has 1,234,568 people.", NO, [("figure", "1,234,567")]),
    ("Die Quote stieg auf 12,5 %.", "Die Quote stieg auf 12.5 Prozent.", YES, []),
    ("Die Quote der Stadt liegt bei 3,4 Mio. Euro.", "Die Quote der Stadt liegt bei 3.400.000 €.", YES, []),
    ("La part est de 8 pour cent.", "La part est de 8 %.", YES, []),
    ("La cuota subió al 8 por ciento.", "La cuota subió al 9 %.", NO, [("figure", "8 por ciento")]),
    ("Between 10 and 12 % of boats leak.", "10–12 % of boats leak.", None, []),
    ("Some 10–14 % of boats leak.", "Between 10 and 12 % of boats leak.", NO, [("figure", "14 %")]),
    ("About 12 % of boats leak.", "11.8 % of boats leak.", YES, []),
    ("Exactly 12 % of boats leak.", "11.8 % of boats leak.", NO, [("figure", "12 %")]),
    ("Over 5,000 boats leak.", "5,120 boats leak.", None, []),
    ("Nearly 12 tons of oil leak.", "12.4 tons of oil leak.", NO, [("figure", "12 tons")]),
    ("There are 12 members.", "There are twelve members.", None, []),
    ("There are twenty-one members.", "There are 21 members.", None, []),
    ("There are twenty-one members.", "There are 22 members.", NO, [("figure", "twenty-one")]),
    ("There are two reasons: leaks and rust.", "The reasons are leaks and rust.", None, []),
    ("It took three million hours.", "It took 3,000,000 hours.", None, []),
    ("Half of the boats, 50 %, leak.", "Half of the boats leak.", YES, []),
    ("It was the 3rd boat.", "It was the third boat.", YES, []),
    ("It was the 4th boat.", "It was the third boat.", NO, [("figure", "4th")]),
    ("The path is 5 km long.", "The path is 5 miles long.", NO, [("figure", "5 km")]),
    ("The path is 5 kilometres long.", "The path is 5 km long.", YES, []),
    ("The wait lasts 6 weeks.", "The wait lasts 6 months.", NO, [("figure", "6 weeks")]),
    ("Version 3.10 of Python added matching.", "Version 3.1 of Python added matching.", NO, [("figure", "3.10")]),
    ("The account is 12345678901234567890.", "The account is 12345678901234567890.", YES, []),
    ("The path is 3 km long.", "The path is 3,000 m long.", YES, []),
    ("The path is 4 km long.", "The path is 3,000 m long.", NO, [("figure", "4 km")]),
    ("The wait lasts 24 months.", "The wait lasts two years.", None, []),
    ("The rate rose by 50 basis points.", "The rate rose by 0.5 percentage points.", YES, []),
    ("The fee is 50 cents.", "The fee is $0.50.", YES, []),
    ("12 % of boats leak.", "11.8 % of boats leak.", YES, []),
    ("13 % of boats leak.", "11.8 % of boats leak.", NO, [("figure", "13 %")]),
    ("The net loss was $21.5 million.", "(dollars in thousands) Net loss | (21,450)", None, []),
    ("Revenue was $382 million.", "(Dollarsinthousands) Revenue | 381,603", None, []),
    ("Revenue was $383 million.", "(dollars in thousands) Revenue | 381,603", NO, [("figure", "$383 million")]),
    ("Revenue was $382 million.", "Revenue | 381,603", UNSURE, [("calculation", "$382 million")]),
    ("It closed (1) the shop and (2) the mill.", "It closed the shop and the mill.", None, []),
    ("The top 3 risks are fire, rust and theft.", "The risks are fire, rust and theft.", YES, []),
    ("So it is in the lines [8].", "So it is in the lines.", YES, []),
    ("4. The lamp is lit at dusk.", "The lamp is lit at dusk.", YES, []),
]  # fmt: skip
CALCULATIONS: list[Case] = [
    ("Lamps A and B cost $7 together.", "Lamp A costs $3 and lamp B costs $4.", UNSURE, [("calculation", "$7")]),
    ("Lamps A and B cost $9 together.", "Lamp A costs $3 and lamp B costs $4.", NO, [("figure", "$9")]),
    ("Sales rose by $5.1 bn from $40.1 bn to $45.2 bn.", "Sales rose: $40.1 billion, $45.2 billion", None, []),
    ("Sales rose by $6.1 bn from $40.1 bn to $45.2 bn.", "Sales: $40.1 bn, $45.2 bn", NO, [("figure", "$6.1 bn")]),
    ("Sales rose by 12.7 % from $40.1 million to $45.2 million.", "Sales rose: $40.1 million, $45.2 million", None, []),
    ("Sales rose by 17 % from $40.1 million to $45.2 million.", "Sales: $40.1 million, $45.2 million", NO,
     [("figure", "17 %")]),
    ("Stores fell by 1.32 %, from 982 to 969.", "Stores fell: 982 | 969", None, []),
    ("The quick ratio was 1.57.", "For the quick ratio, assets were 8,470 and debts 5,395.", UNSURE,
     [("calculation", "1.57")]),
    ("The quick ratio was 1.87.", "Quick assets: 8,470. Current liabilities: 5,395.", NO, [("figure", "1.87")]),
    ("The margin fell by 2.2 percentage points, from 36.8 % to 34.6 %.", "The margin fell: 36.8 %, 34.6 %", None, []),
    ("Lamps were 25 % of sales.", "Sales of lamps 250; all sales 1,000.", UNSURE, [("calculation", "25 %")]),
    ("The mean of the values is 21.", "The mean of the values 30 and 12.", UNSURE, [("calculation", "21")]),
    ("All lamps make 49.", "All lamps make 30, 12 and 7.", UNSURE, [("calculation", "49")]),
    ("The wait is 63.7 days (365 × 1,100 / 6,300).",
     "The wait in days follows from payables 1,100; costs 6,300", None, []),
    ("The wait is 68.7 days (365 × 1,100 / 6,300).", "The wait in days follows from payables 1,100; costs 6,300", NO,
     [("figure", "68.7 days")]),
    ("The ratio is 1.58 = (8,470 + 30) / 5,395.", "For the ratio: cash 8,470; bills 30; debts 5,395", None, []),
    ("The ratio is 1.58.", " ".join(str(number) for number in range(101, 160)), NO, [("figure", "1.58")]),
]  # fmt: skip
DATES: list[Case] = [
    ("It opened on 22 November 2026.", "It opened on 2026-11-22.", YES, []),
    ("It opened on 22 November 2026.", "It opened on Nov. 22nd, 2026.", YES, []),
    ("It opened on 22 November 2026.", "It opened on 22/11/2026.", YES, []),
    ("It opened on 4 March 2024.", "It opened on 03/04/2024.", YES, []),
    ("It opened on 22 November 2026.", "It opened on 23 November 2026.", NO, [("date", "22 November 2026")]),
    ("It opened in November 2026.", "It opened on 22 November 2026.", None, []),
    ("It opened on 22 November 2026.", "It opened in November 2026.", NO, [("date", "22 November 2026")]),
    ("It opened on 3 March 2024.", "It opened le 3 mars 2024.", None, []),
    ("Es wurde am 3. März 2024 mit der Stadt eröffnet.", "Es wurde am 03.03.2024 mit der Stadt eröffnet.", YES, []),
    ("It opened in 2021.", "It opened in 2020.", NO, [("date", "2021")]),
    ("It opened in 2020.", "It opened in the year FY2020.", None, []),
    ("It opened in the 1990s.", "It opened in 1994.", None, []),
    ("It opens at 2:30 pm.", "It opens at 14:30.", None, []),
    ("It opens at 2:30 pm.", "It opens at 14:45.", NO, [("date", "2:30 pm")]),
    ("It may open in May.", "It may open in May.", YES, []),
    ("Sales rose in FY22.", "Sales rose in the fiscal year 2022.", YES, []),
    ("Sales rose in FY2023.", "Sales rose in the fiscal year 2022.", NO, [("date", "FY2023")]),
    ("Sales rose in fiscal 2022.", "Sales rose in FY22.", None, []),
    ("Sales rose in Q3 2022.", "Sales rose in the three months ended September 30, 2022.", None, []),
    ("Sales rose in Q3 2022.", "Sales rose in the third quarter of 2022.", None, []),
    ("Sales rose in Q3 2022.", "Sales rose in the second quarter of 2022.", NO, [("date", "Q3")]),
    ("Sales rose in H1 2023.", "Sales rose in the six months ended June 30, 2023.", None, []),
    ("It ran in the 2018–19 season.", "It ran in the 2018-2019 season.", YES, []),
    ("It ran in the 2018-2019 season.", "It ran in the 2018/19 season.", YES, []),
    ("It closed in Jun'23.", "It closed in June 2023.", YES, []),
    ("It closed on 15 July 2019.", "It closed on 15 Jul 19.", None, []),
    ("It closed on 15 July 2018.", "It closed on 15 Jul 19.", NO, [("date", "15 July 2018")]),
    ("It was built in the 2000's.", "It was built in 2004.", YES, []),
    ("The stone bridge was built in the 19th century.", "The stone bridge was built in 1847.", None, []),
    ("It was built in the 18th century.", "It was built in 1847.", NO, [("figure", "18th")]),
    ("By December of 1865 it was built.", "It was built in 1865. By December all was done.", None, []),
]
NAMES: list[Case] = [
    ("The lamp was lit by Ada Quill.", "The lamp was lit by Ada Quill at dusk.", YES, []),
    ("The lamp was lit by Ada Quill.", "The lamp was lit by the keeper.", NO, [("name", "Ada Quill")]),
    ("The lamp was lit by Ada Quill.", "The lamp was lit by Quill.", None, []),
    ("The lamp was lit by Ada Quill.", "The lamp was lit by Bea Quill.", NO, [("name", "Ada")]),
    ("The harbour belongs to Kenya.", "The Kenyan harbour belongs to the state.", None, []),
    ("Boats came from France.", "French boats came.", None, []),
    ("The harbour trusts the WHO.", "The harbour trusts the World Health Organization.", YES, []),
    ("The harbour trusts the World Health Organization.", "The harbour trusts the WHO.", None, []),
    ("The harbour trusts the OECD.", "The harbour trusts the council.", NO, [("name", "OECD")]),
    ("The harbour's load ratio (HLR) is high.", "The harbour's load ratio is high.", None, []),
    ("Overall, the harbour is old.", "The harbour is old.", None, []),
    ("The Harbour Is Old And Very Deep.", "The harbour is old and very deep.", YES, []),
    ("Shares of American Express rose.", "AMERICANEXPRESS_2022_10K: shares rose.", None, []),
    ("The lamp uses the A320 socket.", "The lamp uses the A330 socket.", NO, [("name", "A320")]),
    ("Ada Quill lit the lamp.", "Bea Quill lit the lamp.", NO, [("name", "Ada")]),
    ("Ada Quill lit the lamp.", "A. Quill lit the lamp.", None, []),
    ("The harbour trusts the Securities and Exchange Commission.", "The harbour trusts the SEC.", None, []),
    ("The harbour trusts the International Court of Justice.", "The harbour trusts the ICJ.", None, []),
    ("The harbour trusts the United States.", "The harbour trusts the U.S. fleet.", None, []),
    ("The harbour's FCF is high.", "The harbour's free cash flow is high.", None, []),
    ("The EBITDA of the harbour and its ferries is high.",
     "Of the harbour and its ferries, the earnings before interest, taxes and amortization are high.", NO,
     [("name", "EBITDA")]),
    ("The EBIT of the harbour and its ferries is high.",
     "Of the harbour and its ferries, the earnings before interest and taxes are high.", None, []),
    ("The harbour's FCF is high.", "The harbour's cash is high.", NO, [("name", "FCF")]),
    ("The harbour pays the Ministry of Defence.", "The harbour pays the Ministry of Defense.", UNSURE,
     [("name", "Defence")]),
    ("Select \"Save\" from the menu of the harbour.", "Choose \"Save\" from the menu of the harbour.", None, []),
    ("Die Kosten der Stadt und Ada Quill sind hoch.", "Die Kosten der Stadt sind hoch.", NO, [("name", "Ada Quill")]),
]  # fmt: skip
POLARITY: list[Case] = [
    ("The lamp is not lit at dusk.", "The lamp is lit at dusk.", NO, [("negation", "not")]),
    ("The lamp is lit at dusk.", "The lamp is never lit at dusk.", NO, [("negation", "")]),
    ("The lamp isn't lit at dusk.", "The lamp is not lit at dusk.", None, []),
    ("Sales of lamps increased last winter.", "Sales of lamps decreased last winter.", NO, [("wording", "increased")]),
    ("Sales of lamps are higher than before.", "Sales of lamps are lower than before.", NO, [("wording", "higher")]),
    ("Only members may enter the harbour.", "Members may enter the harbour.", UNSURE, [("modality", "only")]),
    ("The lamp saves oil.", "The lamp may save oil.", UNSURE, [("modality", "")]),
    ("The lamp may save oil.", "The lamp saves oil.", None, []),
    ("All boats pay the fee.", "All boats except ferries pay the fee.", UNSURE, [("modality", "")]),
    ("Boats pay at least $12.", "Boats pay at most $12.", NO, [("modality", "at least $12")]),
    ("Boats pay up to 12 euros.", "Boats pay at least 12 euros.", NO, [("modality", "up to 12 euros")]),
    ("Boats pay 12 euros.", "Boats pay up to 12 euros.", UNSURE, [("modality", "12 euros")]),
    ("Höchstens 12 Boote sind in der Stadt.", "Mindestens 12 Boote sind in der Stadt.", NO,
     [("modality", "Höchstens 12")]),
]  # fmt: skip
WORDING: list[Case] = [
    ("The keeper lights the lamp at dusk.", "The keeper lights the lamp at dusk.", YES, []),
    ("The engine needs cooling water from the river.", "The keeper lights the lamp at dusk.", NO, []),
    ("The keeper lights the lamp.", "Der Wärter zündet die Lampe an und sie ist in der Nacht hell.", None, []),
    ("The keeper is the owner of 7 lamps.", "Der Wärter ist der Herr und hat 8 Lampen.", NO, [("figure", "7")]),
    ("灯台は1811年に建てられた。", "灯台は1811年に建てられた。", YES, []),
    ("So it is.", "The keeper lights the lamp at dusk.", YES, []),
]


def find_mistakes(cases: Sequence[Case]) -> list[str]:
    mistakes: list[str] = []
    for sentence, passage, verdict, details in cases:
        check = check_support(sentence, [passage])
        found = [(one.kind, one.text) for one in check.missing if one.kind != "wording" or one.lines_say]
        right = check.verdict is verdict if verdict else check.verdict is not NO
        if not right or found != details:
            mistakes.append(f"{sentence} | {passage}: {check.verdict}, {check.score}, {found}")
    return mistakes


@pytest.mark.parametrize(
    "cases",
    [FIGURES, CALCULATIONS, DATES, NAMES, POLARITY, WORDING],
    ids=["figures", "calculations", "dates", "names", "polarity", "wording"],
)
def test_each_pair_has_its_verdict_and_its_missing_detail(cases: Sequence[Case]) -> None:
    assert find_mistakes(cases) == []


WORDS = ["harbour", "lantern", "keeper", "granite", "ferry", "winter", "bridge", "customs", "painter", "copper"]


def make_sentence(words: list[str], number: int) -> str:
    return f"The {words[0]} near the {words[1]} sold {number} {words[2]} parts to a {words[3]}."


sentences = st.builds(
    make_sentence,
    st.lists(st.sampled_from(WORDS), min_size=4, max_size=4, unique=True),
    st.integers(13, 10**6),
)
others = st.lists(st.text(alphabet="abc 0123456789.,%$-\n", max_size=60), max_size=5)


@given(sentences, others, others)
def test_a_sentence_copied_from_its_passage_is_supported(
    sentence: str, before: Sequence[str], after: Sequence[str]
) -> None:
    passage = "\n".join([*before, sentence, *after])
    assert check_support(sentence, [passage]).verdict is YES


@given(sentences, st.integers(13, 10**6))
def test_a_figure_that_is_replaced_by_another_is_named(sentence: str, number: int) -> None:
    own = next(word for word in sentence.split() if word.isdigit())
    changed = sentence.replace(own, str(number))
    check = check_support(changed, [sentence])
    kinds = {detail.kind for detail in check.missing if detail.text == str(number)}
    assert (check.verdict is YES) is (own == str(number))
    assert kinds <= {"figure", "date"}
    assert bool(kinds) is (own != str(number))


@example(sentence="--0", passage="", more="")
@given(st.text(alphabet="0123456789 .,%$€-mkbnthtoan\n", max_size=40), st.text(max_size=60), st.text(max_size=60))
def test_more_text_in_the_passages_never_makes_a_figure_absent(sentence: str, passage: str, more: str) -> None:
    fewer = check_support(sentence, [passage, sentence])
    rules = [detail for detail in fewer.missing if detail.kind in {"figure", "date"}]
    assert rules == []
    longer = check_support(sentence, [passage, sentence, more])
    assert [detail for detail in longer.missing if detail.kind in {"figure", "date"}] == []


@given(st.text(), st.lists(st.text(), max_size=3), st.text())
def test_any_text_has_a_verdict_and_a_score(sentence: str, passages: Sequence[str], question: str) -> None:
    check = check_support(sentence, passages, question=question)
    assert 0 <= check.score <= 1
    assert isinstance(render_missing(check, "lines 1-2"), str)


def test_a_figure_far_into_a_long_passage_counts_if_it_is_spelled_the_same() -> None:
    filler = "The keeper lights the lamp at dusk. " * 30_000
    assert len(filler) > 5 * MAX_READ_CHARACTERS
    far = [f"{filler} Oil for the lamp cost 1,811 crowns."]
    same = check_support("Oil for the lamp cost 1,811 crowns.", far)
    other = check_support("Oil for the lamp cost 1.811 crowns.", far)
    assert [detail.kind for detail in same.missing if detail.kind == "figure"] == []
    assert [detail.text for detail in other.missing if detail.kind == "figure"] == ["1.811"]


def test_names_of_the_question_need_not_stand_in_the_lines() -> None:
    sentence, passage = "Revenue of Lantern Works rose to $7 million.", "Revenue rose to $7 million."
    assert check_support(sentence, [passage]).verdict is NO
    assert check_support(sentence, [passage], question="How did Lantern Works fare?").verdict is not NO


def test_what_is_missing_is_said_with_the_lines() -> None:
    figure = check_support("Sales grew by 12 %.", ["Sales grew by 13 percent."])
    assert render_missing(figure, "lines 40-44") == '"12 %" is not in lines 40-44'
    twice = check_support("Sales grew by 12 %, then by 12 %.", ["Sales grew by 13 percent."])
    assert render_missing(twice, "lines 40-44") == '"12 %" is not in lines 40-44'
    opposite = check_support("Sales of lamps increased last winter.", ["Sales of lamps fell last winter."])
    assert (
        render_missing(opposite, "lines 1-2")
        == 'the sentence says "increased", but the cited text says "fell" (lines 1-2)'
    )
    dropped = check_support("The lamp is lit at dusk.", ["The lamp is never lit at dusk."])
    assert render_missing(dropped, "lines 3-3") == 'the sentence leaves out "never", which is in lines 3-3'


def test_more_of_what_speaks_for_a_sentence_never_lowers_its_score() -> None:
    base = SupportFeatures(*SUPPORT_MODEL.means)
    score = SUPPORT_MODEL.estimate(base)
    assert SUPPORT_MODEL.estimate(base._replace(window_share=1)) > score
    assert SUPPORT_MODEL.estimate(base._replace(near_pairs=1)) > score
    assert SUPPORT_MODEL.estimate(base._replace(missing_figures=2)) < score
    assert SUPPORT_MODEL.estimate(base._replace(missing_names=2)) < score
    assert 0 < SUPPORT_MODEL.not_supported_below < 0.5 < SUPPORT_MODEL.supported_from < 1
