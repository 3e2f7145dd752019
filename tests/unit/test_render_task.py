from datetime import UTC, datetime

from inline_snapshot import snapshot
from rich.console import Console, RenderableType

from waystation.cli.render import happened, message_text, task_screen, tasks_table
from waystation.cli.task_json import task_json
from waystation.domain.budget import RunTotals, Usage
from waystation.domain.compaction.outcome import AgentCompaction, Status
from waystation.domain.details import cost_text
from waystation.domain.messages import Message, Text, Thinking, ToolResult, ToolUse
from waystation.domain.models import OFFLINE_MODEL
from waystation.domain.task import Approval, BudgetProgress, Refusal, StepProgress, TaskPhase, TaskProgress
from waystation.seen import TaskView

USAGE = Usage(input=1_000, cache_write=200, cache_read=3_000, output=400)
ASKING = Approval(
    request_id="r1", agent="research-1", asked_tokens=30_000, spent=29_500, task_spent=41_200, steps_left=3
)
PAUSED = TaskView(
    progress=TaskProgress(
        task_id="task-0123456789abcdef",
        phase=TaskPhase.PAUSED,
        title="Which licences [red]do[/red] they carry?",
        model="claude-sonnet-5-5",
        steps=(
            StepProgress(
                id="research-1", role="research", state="paused", legs=2, usage=USAGE, limit=30_000, spent=29_500
            ),
            StepProgress(id="writing", role="writing", state="waiting", legs=0, usage=Usage()),
        ),
        budget=BudgetProgress(limit=200_000, spent=41_200, reserved=90_000),
        totals=RunTotals(usage=USAGE, turns=4, cost_micro_usd=123_456),
        legs=2,
        compactions=(
            AgentCompaction(
                agent="research-1",
                compaction_id="c1",
                status=Status.COMPRESSED,
                strategy="window",
                tokens_before=9_100,
                tokens_after=4_300,
                covered=14,
                passages=6,
                passages_waiting=6,
                redactions=2,
                totals=RunTotals(),
            ),
        ),
        approvals=(ASKING,),
        notes=("memory is down",),
    ),
    run_id="run-1",
    ui_url="http://127.0.0.1:8233/namespaces/default/workflows/task-0123456789abcdef",
)


def drawn(renderable: RenderableType) -> str:
    console = Console(width=150, highlight=False)
    with console.capture() as captured:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def test_a_paused_task_shows_its_spending_its_compaction_and_how_to_go_on() -> None:
    assert drawn(task_screen(PAUSED)) == snapshot("""\
task-0123456789abcdef  paused  Which licences [red]do[/red] they carry?
41,200 of 200,000 tokens spent, 90,000 reserved; 2 legs; 1 compaction; cost $0.1235; model claude-sonnet-5-5
step        role      state    legs  spent  limit  why
research-1  research  paused   2     29.5k  30k
writing     writing   waiting  0     0      0
research-1 compacted: COMPRESSED, 9,100 to 4,300 tokens, 6 passages kept (6 still waiting), 2 redactions
Note: memory is down
Paused: research-1 has spent 29,500 of its 0 tokens and asks for 30,000 more.
  its next call may need up to 0 more than it has left: a smaller grant pauses again
  when it asked, the task had spent 41,200, with 3 steps to finish
  approve: waystation approve task-0123456789abcdef --request r1 --add 30000
  or end with what there is: waystation deny task-0123456789abcdef --request r1 --finish partial
http://127.0.0.1:8233/namespaces/default/workflows/task-0123456789abcdef\
""")


def test_a_screen_shows_the_newest_compactions_and_counts_the_others() -> None:
    many = PAUSED.progress.model_copy(update={"compactions": PAUSED.progress.compactions * 5})
    screen = drawn(task_screen(TaskView(progress=many)))
    assert screen.count("COMPRESSED") == 3
    assert "2 earlier compactions" in screen


def test_what_happened_is_told_once_and_in_sentences() -> None:
    assert happened(None, PAUSED) == snapshot(
        (
            "research-1 is paused: 2 legs, 29,500 of 30,000 tokens",
            "research-1 compacted: COMPRESSED, 9,100 to 4,300 tokens, 6 passages kept (6 still waiting), 2 redactions",
            "Note: memory is down",
            "task-0123456789abcdef is paused",
            """\
Paused: research-1 has spent 29,500 of its 0 tokens and asks for 30,000 more.
  its next call may need up to 0 more than it has left: a smaller grant pauses again
  when it asked, the task had spent 41,200, with 3 steps to finish
  approve: waystation approve task-0123456789abcdef --request r1 --add 30000
  or end with what there is: waystation deny task-0123456789abcdef --request r1 --finish partial\
""",
        )
    )
    assert happened(PAUSED, PAUSED) == ()


def test_answers_and_refusals_are_told() -> None:
    answered = ASKING.model_copy(update={"decision": "approved", "granted_tokens": 30_000, "by": "ada"})
    refused = Refusal(signal="approve_budget", reason="no request waits", at=datetime(2026, 1, 1, tzinfo=UTC))
    going_on = PAUSED.progress.model_copy(
        update={"phase": TaskPhase.WORKING, "approvals": (answered,), "refusals": (refused,)}
    )
    assert happened(PAUSED, TaskView(progress=going_on)) == snapshot(
        (
            "task-0123456789abcdef is working",
            "Approved by ada: 30,000 tokens for research-1",
            "Refused: approve_budget: no request waits",
        )
    )


def test_the_json_of_a_task_has_these_keys() -> None:
    assert task_json(PAUSED, None).model_dump(mode="json") == snapshot(
        {
            "task_id": "task-0123456789abcdef",
            "workflow_id": "task-0123456789abcdef",
            "run_id": "run-1",
            "ui_url": "http://127.0.0.1:8233/namespaces/default/workflows/task-0123456789abcdef",
            "report_path": None,
            "phase": "paused",
            "model": "claude-sonnet-5-5",
            "usage": {"input": 1000, "cache_write": 200, "cache_read": 3000, "output": 400, "total": 4600},
            "cost_usd": 0.123456,
            "legs": 2,
            "compactions": [
                {
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
                    "asked_tokens": 30000,
                    "granted_tokens": 0,
                    "decision": "pending",
                    "by": "",
                    "note": "",
                }
            ],
            "steps": [
                {
                    "id": "research-1",
                    "role": "research",
                    "state": "paused",
                    "legs": 2,
                    "usage": {"input": 1000, "cache_write": 200, "cache_read": 3000, "output": 400, "total": 4600},
                },
                {
                    "id": "writing",
                    "role": "writing",
                    "state": "waiting",
                    "legs": 0,
                    "usage": {"input": 0, "cache_write": 0, "cache_read": 0, "output": 0, "total": 0},
                },
            ],
            "budget": {"limit": 200000, "spent": 41200, "reserved": 90000},
        }
    )


def test_a_cost_without_a_price_is_unknown_and_not_zero() -> None:
    unpriced = PAUSED.progress.model_copy(update={"totals": RunTotals(usage=USAGE, cost_micro_usd=None)})
    assert task_json(TaskView(progress=unpriced), None).cost_usd is None
    assert cost_text(unpriced) == "price unknown"
    assert cost_text(unpriced.model_copy(update={"model": OFFLINE_MODEL})) == "nothing, offline"


def test_tasks_are_listed_one_a_row() -> None:
    assert drawn(tasks_table([PAUSED])) == snapshot("""\
task                   phase   spent  budget  cost     question
task-0123456789abcdef  paused  41.2k  200k    $0.1235  Which licences [red]do[/red] they carry?\
""")


def test_a_message_shows_every_kind_of_block() -> None:
    message = Message(
        id="m7",
        role="assistant",
        blocks=(
            Thinking(thinking="hm", signature="s"),
            Text(text="I look it up."),
            ToolUse(id="t1", name="search_documents", input={"query": "licence"}),
            ToolResult(tool_use_id="t1", content="nothing", is_error=True),
        ),
    )
    assert message_text(message) == snapshot("""\
[m7] assistant
(thinks) hm
I look it up.
(calls search_documents) {'query': 'licence'}
(error) nothing
""")
