import pytest

from tests.support.agent_environment import SECRET, SECRET_PLACEHOLDER, AgentEnvironment
from waystation.documents import previews
from waystation.documents.documents import SourceDocument
from waystation.documents.previews import DocumentPreview, build_document_previews, select_first_lines


async def build_previews(env: AgentEnvironment, *documents: SourceDocument) -> tuple[DocumentPreview, ...]:
    await env.open_task(documents)
    listed = await env.store.list_documents(env.task_id, env.ref.scope)
    return await build_document_previews(listed, env.redacted_documents, env.redactor, env.ref.scope)


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (["# The harbour", "", "It silted up."], "# The harbour / It silted up."),
        (["[page 1]", "---", "  Annual   report ", "2024"], "Annual report / 2024"),
        (["word " * 20], "word word word word word word …"),
        (["", "***", "|---|"], ""),
        ([""], ""),
    ],
    ids=["heading", "marks", "long", "no words", "empty"],
)
def test_a_preview_has_the_first_lines_with_words_on_one_line(lines: list[str], shown: str) -> None:
    assert select_first_lines(lines, 30) == shown


async def test_a_preview_shows_redacted_text_alone_and_is_not_cut_in_a_placeholder(bare_env: AgentEnvironment) -> None:
    text = f"{'x' * (previews.MAX_PREVIEW_CHARACTERS - 5)} {SECRET} and more"
    (secret, cut) = await build_previews(
        bare_env, SourceDocument(name="a.md", text=f"Key: {SECRET}"), SourceDocument(name="b.md", text=text)
    )
    assert secret == DocumentPreview(name="a.md", text=f"Key: {SECRET_PLACEHOLDER}")
    assert cut.text == f"{'x' * (previews.MAX_PREVIEW_CHARACTERS - 5)} …"


async def test_previews_are_bounded_in_number_and_in_characters_read_and_shown(bare_env: AgentEnvironment) -> None:
    large = SourceDocument(name="large.md", text="large\n" * previews.MAX_READ_CHARACTERS)
    many = [SourceDocument(name=f"{number}.md", text=f"{number} " * 400) for number in range(60)]
    shown = await build_previews(bare_env, large, *many)
    assert [one.name for one in shown] == [f"{number}.md" for number in range(previews.MAX_PREVIEWED_DOCUMENTS)]
    assert sum(len(one.text) for one in shown) <= previews.MAX_TOTAL_CHARACTERS + 2 * len(shown)


async def test_the_same_documents_have_the_same_previews(bare_env: AgentEnvironment) -> None:
    first = await build_previews(bare_env, SourceDocument(name="a.md", text=f"Key: {SECRET}"))
    listed = await bare_env.store.list_documents(bare_env.task_id, bare_env.ref.scope)
    again = await build_document_previews(listed, bare_env.redacted_documents, bare_env.redactor, bare_env.ref.scope)
    assert again == first
