"""The counting of the search benchmark: a wrong count would make any search look good or bad."""

from benchmarks.search.filings import Evidence, FilingQuestion, find_first_pages
from benchmarks.search.measure import ProductSearch
from benchmarks.search.packages import KINDS, build_queries, compute_fact_recall, load_paraphrases
from benchmarks.search.plain import PlainSearch
from waystation.plugins.evaluation.question_sets import find_question_set, load_question_set

TEXTS = {"a.pdf": "[page 1]\nA pier.\n\n[page 2]\nA pier and a shed.", "b.pdf": "[page 7]\nA shed."}


def test_every_question_of_the_shipped_set_has_its_paraphrases() -> None:
    questions = load_question_set(find_question_set("packages")).questions
    paraphrases = load_paraphrases()
    assert {one.id for one in questions} == paraphrases.keys()
    assert all(len({*build_queries(one, paraphrases)}) == len(KINDS) for one in questions)


def test_a_fact_counts_in_any_of_its_spellings_over_line_ends() -> None:
    (question,) = [
        one for one in load_question_set(find_question_set("packages")).questions if one.id == "rich-windows"
    ]
    assert compute_fact_recall(question, ["It is limited to 16\ncolors."]) == 0.5
    assert compute_fact_recall(question, ["16 colors", "and true  color"]) == 1
    assert compute_fact_recall(question, []) == 0


async def test_pages_count_once_in_the_order_of_their_first_passage() -> None:
    lines = {name: text.splitlines() for name, text in TEXTS.items()}
    for search in (PlainSearch(TEXTS), ProductSearch(TEXTS, None)):
        hits = await search.search("shed", 10)
        assert {*find_first_pages(hits, lines, 5)} == {("a.pdf", "page 2"), ("b.pdf", "page 7")}
        assert find_first_pages([*hits, *hits], lines, 1) == find_first_pages(hits, lines, 1)
        assert [hit.name for hit in await search.search("shed", 10, "b.pdf")] == ["b.pdf"]
    evidence = Evidence(doc_name="a", evidence_page_num=1)
    assert FilingQuestion(question="?", evidence=[evidence]).pages == {("a.pdf", "page 2")}
