from datetime import UTC, datetime

from inline_snapshot import snapshot

from tests.support.view_values import PAUSED_PROGRESS_IN_DOLLARS, PAUSED_VIEW, PENDING_APPROVAL, VIEWED_PROGRESS
from waystation.agents.action_approvals import ActionQuestion
from waystation.context.compaction import ContextEdit
from waystation.documents.documents import DocumentsUpdate
from waystation.planning.plan import ReportReview
from waystation.tasks.task import RejectedMessage, ReportVersion, TaskMessage, TaskPhase
from waystation.tasks.view import TaskView

NOON = datetime(2026, 7, 25, 12, tzinfo=UTC)
CALL = ActionQuestion(call_id="c1", tool="send_letter", text="Send it?", digest="d")


def test_the_json_of_a_task_has_these_keys() -> None:
    assert PAUSED_VIEW.model_dump(mode="json") == snapshot(
        {
            "task_id": "task-0123456789abcdef",
            "title": "Which licences [red]do[/red] they carry?",
            "phase": "paused",
            "session": "",
            "submitted_at": None,
            "ended_at": None,
            "remark": "",
            "run_id": "run-1",
            "ui_url": "http://127.0.0.1:8233/namespaces/default/workflows/task-0123456789abcdef",
            "report_path": None,
            "model": "claude-sonnet-5-5",
            "models": {},
            "budget": {
                "limit": {"tokens": 200000, "usd": None},
                "spent": {"tokens": 41200, "usd": 0.0},
                "reserved": {"tokens": 90000, "usd": 0.0},
            },
            "usage": {
                "input": 1000,
                "cache_write": 200,
                "cache_read": 3000,
                "output": 400,
                "total": 4600,
                "cached_share": 0.7143,
                "searches": 0,
                "estimated": 0,
            },
            "cost_usd": 0.123456,
            "possibly_billed": {"tokens": 0, "usd": 0.0},
            "turns": 4,
            "legs": 2,
            "steps": [
                {
                    "id": "research-1",
                    "role": "research",
                    "title": "",
                    "state": "paused",
                    "legs": 2,
                    "usage": {
                        "input": 1000,
                        "cache_write": 200,
                        "cache_read": 3000,
                        "output": 400,
                        "total": 4600,
                        "cached_share": 0.7143,
                        "searches": 0,
                        "estimated": 0,
                    },
                    "cost_usd": None,
                    "limit": {"tokens": 30000, "usd": None},
                    "spent": {"tokens": 29500, "usd": 0.0},
                    "drawable": {"tokens": 0, "usd": 0.0},
                    "reason": "",
                },
                {
                    "id": "writing",
                    "role": "writing",
                    "title": "",
                    "state": "waiting",
                    "legs": 0,
                    "usage": {
                        "input": 0,
                        "cache_write": 0,
                        "cache_read": 0,
                        "output": 0,
                        "total": 0,
                        "cached_share": 0.0,
                        "searches": 0,
                        "estimated": 0,
                    },
                    "cost_usd": None,
                    "limit": {"tokens": None, "usd": None},
                    "spent": {"tokens": 0, "usd": 0.0},
                    "drawable": {"tokens": 0, "usd": 0.0},
                    "reason": "",
                },
            ],
            "activity": [],
            "waiting_for": [],
            "approvals": [
                {
                    "request_id": "r1",
                    "agent": "research-1",
                    "action": None,
                    "requested": {"tokens": 30000, "usd": 0.0},
                    "granted": {"tokens": 0, "usd": 0.0},
                    "needed": {"tokens": 900, "usd": 0.0},
                    "spent": {"tokens": 29500, "usd": 0.0},
                    "limit": {"tokens": 30000, "usd": None},
                    "task_spent": {"tokens": 41200, "usd": 0.0},
                    "steps_left": 3,
                    "forecast": {
                        "calls": 7,
                        "average_call": {"tokens": 4214, "usd": 0.0},
                        "affordable_calls": 7,
                        "needed_to_finish": {"tokens": 0, "usd": 0.0},
                        "steps_finished": 1,
                        "steps_to_come": 2,
                        "reserved_for_later": {"tokens": 60000, "usd": 0.0},
                        "work": {"notes": 3, "findings": 0, "sections": 0},
                        "grantable": {"tokens": None, "usd": None},
                        "can_be_granted": True,
                        "unanswered_call": "",
                        "if_denied": (
                            "research-1 ends with 3 notes; analysis continues with this result; the report is partial"
                        ),
                    },
                    "reason": "",
                    "decision": "pending",
                    "by": "",
                    "verified": "",
                    "note": "",
                    "requested_at": None,
                    "answer_by": None,
                    "answered_at": None,
                    "sent_from": None,
                }
            ],
            "rejected_messages": [],
            "messages": [],
            "document_updates": [],
            "context_edits": [],
            "compactions": [
                {
                    "id": "c1",
                    "agent": "research-1",
                    "status": "COMPRESSED",
                    "tokens_before": 9100,
                    "tokens_after": 4300,
                    "passages": 6,
                    "passages_waiting": 6,
                    "redactions": 2,
                }
            ],
            "compaction_totals": {
                "research-1": {"count": 1, "effective_count": 1, "hidden_tokens": 4800, "passages": 6, "redactions": 2}
            },
            "plans": [],
            "revisions": [],
            "reviews": [],
            "judgements": [],
            "reports": [],
            "reused_work": None,
            "notes": ["memory is down"],
            "privacy": None,
            "procedures": [],
            "tool_servers": None,
            "resolved_placeholders": [],
            "passages_pending": 0,
            "passages_rejected": [],
            "unindexed_characters": 0,
            "skipped_items": [],
        }
    )


def test_the_json_of_a_task_names_dollars_beside_tokens() -> None:
    printed = TaskView.from_progress(PAUSED_PROGRESS_IN_DOLLARS)
    assert printed.budget.model_dump() == snapshot(
        {
            "limit": {"tokens": 200000, "usd": 2.0},
            "spent": {"tokens": 41200, "usd": 0.7},
            "reserved": {"tokens": 90000, "usd": 1.0},
        }
    )
    assert printed.approvals[0].model_dump(include={"requested", "granted"}) == (
        snapshot({"requested": {"tokens": 0, "usd": 0.5}, "granted": {"tokens": 0, "usd": 0.0}})
    )


def test_new_versions_of_documents_stand_as_numbers() -> None:
    update = DocumentsUpdate(
        number=1, document_set="5a" * 32, by="Ada", updated_at=NOON, stored=True, changed=2, added=1
    )
    progress = VIEWED_PROGRESS.replace(document_updates=(update,))
    (shown,) = TaskView.from_progress(progress).model_dump(mode="json")["document_updates"]
    assert shown == {
        "number": 1,
        "by": "Ada",
        "updated_at": "2026-07-25T12:00:00Z",
        "stored": True,
        "changed": 2,
        "added": 1,
        "removed": 0,
        "text": "2 changed, 1 added",
    }


def test_a_view_is_read_back_from_its_json_as_it_was() -> None:
    for view in (PAUSED_VIEW, TaskView.from_progress(PAUSED_PROGRESS_IN_DOLLARS)):
        assert TaskView.model_validate_json(view.model_dump_json()) == view


def test_no_reference_into_the_store_and_no_id_of_an_answer_is_in_the_json() -> None:
    hidden = "5a" * 32
    progress = VIEWED_PROGRESS.replace(
        report=hidden,
        reports=(ReportVersion(number=1, report=hidden, phase=TaskPhase.DONE, stored_at=NOON),),
        state=hidden,
        approvals=(PENDING_APPROVAL.replace(answer_id=hidden, action=CALL.replace(digest=hidden)),),
        rejected_messages=(RejectedMessage(signal="deny_budget", reason="late", at=NOON, answer_id=hidden),),
        context_edits=(
            ContextEdit(id="edit-1", agent="a", action="pin", answer_id=hidden, instructions=hidden, requested_at=NOON),
        ),
        task_messages=(TaskMessage(number=1, text=hidden, answer_id=hidden, sent_at=NOON),),
        document_updates=(DocumentsUpdate(number=1, document_set=hidden, answer_id=hidden, updated_at=NOON),),
        reviews=(ReportReview(number=1, faults=2, faults_hash=hidden),),
    )
    view = TaskView.from_progress(progress)
    assert (len(view.approvals), len(view.reports), len(view.reviews), len(view.context_edits)) == (1, 1, 1, 1)
    assert hidden not in view.model_dump_json()
