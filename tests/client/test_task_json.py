from datetime import UTC, datetime

from inline_snapshot import snapshot

from tests.support.view_values import PAUSED_PROGRESS_IN_DOLLARS, PAUSED_VIEW
from waystation.client.task_json import build_task_json
from waystation.documents.documents import DocumentsUpdate
from waystation.tasks.view import TaskView

NOON = datetime(2026, 7, 25, 12, tzinfo=UTC)


def test_the_json_of_a_task_has_these_keys() -> None:
    assert build_task_json(PAUSED_VIEW, None).model_dump(mode="json") == snapshot(
        {
            "task_id": "task-0123456789abcdef",
            "run_id": "run-1",
            "ui_url": "http://127.0.0.1:8233/namespaces/default/workflows/task-0123456789abcdef",
            "report_path": None,
            "title": "Which licences [red]do[/red] they carry?",
            "phase": "paused",
            "submitted_at": None,
            "ended_at": None,
            "model": "claude-sonnet-5-5",
            "models": {},
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
            "legs": 2,
            "compactions": [
                {
                    "id": "c1",
                    "agent": "research-1",
                    "status": "COMPRESSED",
                    "tokens_before": 9100,
                    "tokens_after": 4300,
                    "passages": 6,
                    "redactions": 2,
                }
            ],
            "approvals": [
                {
                    "request_id": "r1",
                    "agent": "research-1",
                    "action": None,
                    "asked_tokens": 30000,
                    "asked_usd": 0.0,
                    "granted_tokens": 0,
                    "granted_usd": 0.0,
                    "needed_tokens": 900,
                    "needed_usd": 0.0,
                    "spent_tokens": 29500,
                    "spent_usd": 0.0,
                    "decision": "pending",
                    "by": "",
                    "verified": "",
                    "note": "",
                    "requested_at": None,
                    "answer_by": None,
                    "answered_at": None,
                    "outlook": {
                        "calls": 7,
                        "call_tokens": 4214,
                        "call_usd": 0.0,
                        "calls_worth": 7,
                        "finishing_tokens": 0,
                        "finishing_usd": 0.0,
                        "steps_finished": 1,
                        "steps_to_come": 2,
                        "kept_tokens": 60000,
                        "kept_usd": 0.0,
                        "notes": 3,
                        "findings": 0,
                        "sections": 0,
                        "denial": "research-1 ends with 3 notes, analysis goes on with that, and the task ends partial",
                    },
                    "sent_from": None,
                }
            ],
            "steps": [
                {
                    "id": "research-1",
                    "role": "research",
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
                    "limit_tokens": 30000,
                    "limit_usd": None,
                    "spent_tokens": 29500,
                    "spent_usd": 0.0,
                    "reason": "",
                },
                {
                    "id": "writing",
                    "role": "writing",
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
                    "limit_tokens": None,
                    "limit_usd": None,
                    "spent_tokens": 0,
                    "spent_usd": 0.0,
                    "reason": "",
                },
            ],
            "plans": [],
            "reviews": [],
            "budget": {
                "limit_tokens": 200000,
                "limit_usd": None,
                "spent_tokens": 41200,
                "spent_usd": 0.0,
                "reserved_tokens": 90000,
                "reserved_usd": 0.0,
            },
            "messages": [],
            "updates": [],
            "resolutions": [],
            "reused": None,
            "notes": ["memory is down"],
            "privacy": None,
            "waits": [],
            "doing": [],
            "passages_waiting": 0,
            "passages_refused": [],
            "characters_not_remembered": 0,
            "procedures": [],
            "servers": None,
            "session": "",
        }
    )


def test_the_json_of_a_task_names_dollars_beside_tokens() -> None:
    printed = build_task_json(TaskView(progress=PAUSED_PROGRESS_IN_DOLLARS), None)
    assert printed.budget.model_dump() == snapshot(
        {
            "limit_tokens": 200000,
            "limit_usd": 2.0,
            "spent_tokens": 41200,
            "spent_usd": 0.7,
            "reserved_tokens": 90000,
            "reserved_usd": 1.0,
        }
    )
    assert printed.approvals[0].model_dump(include={"asked_tokens", "asked_usd", "granted_tokens", "granted_usd"}) == (
        snapshot({"asked_tokens": 0, "asked_usd": 0.5, "granted_tokens": 0, "granted_usd": 0.0})
    )


def test_new_versions_of_documents_stand_as_numbers() -> None:
    update = DocumentsUpdate(number=1, given="5a" * 32, by="Ada", updated_at=NOON, kept=True, changed=2, added=1)
    progress = PAUSED_VIEW.progress.replace(updates=(update,))
    (shown,) = build_task_json(PAUSED_VIEW.replace(progress=progress), None).model_dump(mode="json")["updates"]
    assert shown == {
        "number": 1,
        "by": "Ada",
        "updated_at": "2026-07-25T12:00:00Z",
        "kept": True,
        "changed": 2,
        "added": 1,
        "removed": 0,
    }
