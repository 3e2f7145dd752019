from tests.reports.test_publisher import publish_report, submit_deliverable
from tests.support.agent_environment import NOON, TASK, AgentEnvironment, make_tool_use
from waystation.agents.deliverables import ReportDraft, ReportSection
from waystation.context.transcript import Message, ToolResult, build_user_message
from waystation.documents.web_pages import build_web_page, make_stored_web_page, wrap_untrusted_page

ADDRESS, TEXT = "https://example.org/harbour", "The harbour\nIt silted up within ten years."


async def read_page(env: AgentEnvironment) -> None:
    """The research agent has fetched the page."""
    page = make_stored_web_page(build_web_page(ADDRESS, TEXT, NOON), await env.store.put_text(TEXT, env.ref.scope))
    shown = wrap_untrusted_page(page, ["1| The harbour"], "1-2 of 2")
    await env.commit_conversation(
        (
            build_user_message("m1", "Read about it."),
            Message(id="m2", role="assistant", blocks=(make_tool_use("fetch_page", "c1", url=ADDRESS),)),
            Message(id="m3", role="user", blocks=(ToolResult(tool_use_id="c1", content=shown),)),
        )
    )


def draft(*markdown: str) -> ReportDraft:
    return ReportDraft(title="The harbour", sections=(ReportSection(heading="Causes", markdown="\n".join(markdown)),))


async def test_pages_that_agents_have_fetched_are_cited_by_their_address_and_checked_like_documents(
    env: AgentEnvironment,
) -> None:
    await read_page(env)
    holds = f'"It silted up within ten years." [{ADDRESS}:2-2]'
    await submit_deliverable(
        env, "writing", draft(holds, f'"It was dredged." [{ADDRESS}:2-2]', f"More [{ADDRESS}:2-9].")
    )
    outcome, report = await publish_report(env)
    assert (outcome.citations, outcome.failed) == (3, 2)
    assert "the quoted words are not in these lines" in report
    assert "the document has 2 lines" in report


async def test_a_page_that_nobody_has_fetched_is_no_source(env: AgentEnvironment) -> None:
    await submit_deliverable(env, "writing", draft(f"It closed [{ADDRESS}:1-1]."))
    outcome, report = await publish_report(env)
    assert outcome.failed == 1
    assert f"[{ADDRESS}:1-1]: there is no such document" in report
    assert TASK in report
