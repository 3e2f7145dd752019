import shlex
from datetime import UTC, datetime, timedelta

from inline_snapshot import snapshot
from rich.console import Console, RenderableType

from tests.unit.render_values import ASKING, ASKING_OUTLOOK, DEAR, PAUSED, USAGE
from waystation.cli.amounts import parse_amount
from waystation.cli.render import approvals_text, approve_command, happened, pause_text, task_screen, tasks_table
from waystation.cli.task_json import task_json
from waystation.domain.amount import Amount
from waystation.domain.budget import RunTotals
from waystation.domain.details import cost_text
from waystation.domain.models import OFFLINE_MODEL
from waystation.domain.sent import Origin
from waystation.domain.task import Refusal, TaskPhase
from waystation.seen import PendingApproval, TaskView

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def drawn(renderable: RenderableType) -> str:
    console = Console(width=120, highlight=False)
    with console.capture() as captured:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def test_a_paused_task_shows_its_spending_its_compaction_and_how_to_go_on() -> None:
    assert drawn(task_screen(PAUSED)) == snapshot("""\
task-0123456789abcdef  paused  Which licences [red]do[/red] they carry?
41,200 of 200,000 tokens spent, 90,000 tokens reserved; 2 legs; 1 compaction; cost $0.123456; model claude-sonnet-5-5
step        role      state    legs  spent  limit  why
research-1  research  paused   2     29.5k  30k
writing     writing   waiting  0     0      -
research-1 compacted: COMPRESSED, 9,100 to 4,300 tokens, 6 passages kept (6 still waiting), 2 redactions
Note: memory is down
Paused: research-1 has spent 29,500 of 30,000 tokens and asks for 30,000 tokens more.
  7 calls so far, about 4,200 tokens each: 30,000 tokens more are worth about 7
  its next call may need up to 900 tokens more than it has left: a smaller grant pauses again
  when it asked, the task had spent 41,200 tokens, with 1 of 4 steps finished; 2 to come keep their 60,000 tokens
  so far: 3 notes; read it: waystation report task-0123456789abcdef --draft
  if denied, research-1 ends with 3 notes, analysis goes on with that, and the task ends partial
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
Paused: research-1 has spent 29,500 of 30,000 tokens and asks for 30,000 tokens more.
  7 calls so far, about 4,200 tokens each: 30,000 tokens more are worth about 7
  its next call may need up to 900 tokens more than it has left: a smaller grant pauses again
  when it asked, the task had spent 41,200 tokens, with 1 of 4 steps finished; 2 to come keep their 60,000 tokens
  so far: 3 notes; read it: waystation report task-0123456789abcdef --draft
  if denied, research-1 ends with 3 notes, analysis goes on with that, and the task ends partial
  approve: waystation approve task-0123456789abcdef --request r1 --add 30000
  or end with what there is: waystation deny task-0123456789abcdef --request r1 --finish partial\
""",
        )
    )
    assert happened(PAUSED, PAUSED) == ()


def test_answers_and_refusals_are_told() -> None:
    answered = ASKING.model_copy(update={"decision": "approved", "granted": Amount(tokens=30_000), "by": "ada"})
    refused = Refusal(signal="approve_budget", reason="no request waits", at=datetime(2026, 1, 1, tzinfo=UTC))
    going_on = PAUSED.progress.model_copy(
        update={"phase": TaskPhase.WORKING, "approvals": (answered,), "refusals": (refused,)}
    )
    assert happened(PAUSED, TaskView(progress=going_on)) == snapshot(
        (
            "task-0123456789abcdef is working",
            "research-1 asked for 30,000 tokens after 7 calls; 30,000 tokens approved by ada (a name as given)",
            "Refused: approve_budget: no request waits",
        )
    )


def test_a_task_with_a_budget_in_dollars_shows_them_everywhere_and_a_command_that_a_shell_takes() -> None:
    assert drawn(task_screen(TaskView(progress=DEAR))) == snapshot("""\
task-0123456789abcdef  paused  Which licences [red]do[/red] they carry?
41,200 of 200,000 tokens and $0.70 of $2.00 spent, 90,000 tokens and $1.00 reserved; 2 legs; 1 compaction; cost
$0.123456; model claude-sonnet-5-5
step        role      state   legs  spent  limit  why
research-1  research  paused  2     $0.45  $0.50
research-1 compacted: COMPRESSED, 9,100 to 4,300 tokens, 6 passages kept (6 still waiting), 2 redactions
Note: memory is down
Paused: research-1 has spent $0.45 of $0.50 and asks for $0.50 more.
  7 calls so far, about $0.064 each: $0.50 more are worth about 7
  its next call may need up to $0.012345 more than it has left: a smaller grant pauses again
  when it asked, the task had spent 41,200 tokens and $0.70, with 1 of 4 steps finished; 2 to come keep their $1.00
  so far: 3 notes; read it: waystation report task-0123456789abcdef --draft
  if denied, research-1 ends with 3 notes, analysis goes on with that, and the task ends partial
  approve: waystation approve task-0123456789abcdef --request r1 --add '$0.50'
  or end with what there is: waystation deny task-0123456789abcdef --request r1 --finish partial\
""")
    assert drawn(tasks_table([TaskView(progress=DEAR)])) == snapshot("""\
task                   phase   spent        budget      cost       question
task-0123456789abcdef  paused  41.2k $0.70  200k $2.00  $0.123456  Which licences [red]do[/red] they carry?\
""")


def test_the_command_to_approve_survives_the_shell_and_grants_what_was_asked_for() -> None:
    words = shlex.split(approve_command("task-1", DEAR.approvals[0]))
    assert words[-2:] == ["--add", "$0.50"]
    assert parse_amount(words[-1], "--add") == DEAR.approvals[0].asked


def test_a_cost_without_a_price_is_unknown_and_not_zero() -> None:
    unpriced = PAUSED.progress.model_copy(update={"totals": RunTotals(usage=USAGE, cost_micro_usd=None)})
    assert task_json(TaskView(progress=unpriced), None).cost_usd is None
    assert cost_text(unpriced) == "price unknown"
    assert cost_text(unpriced.model_copy(update={"model": OFFLINE_MODEL})) == "nothing, offline"


def test_tasks_are_listed_one_a_row() -> None:
    assert drawn(tasks_table([PAUSED])) == snapshot("""\
task                   phase   spent  budget  cost       question
task-0123456789abcdef  paused  41.2k  200k    $0.123456  Which licences [red]do[/red] they carry?\
""")


def test_the_inbox_tells_in_brief_what_each_request_is_about() -> None:
    worth_nothing = ASKING_OUTLOOK.model_copy(update={"worth": 0})
    halted = ASKING.model_copy(
        update={"request_id": "r2", "asked": Amount(), "reason": "no credit", "outlook": worth_nothing}
    )
    late = ASKING.model_copy(update={"requested_at": NOON, "answer_by": NOON + timedelta(hours=9)})
    waiting = [PendingApproval(task_id="task-1", title="Why?", approval=approval) for approval in (late, halted)]
    assert approvals_text(waiting) == snapshot("""\
task-1  Why?
  research-1 asks for 30,000 tokens more, since 2026-11-21 12:00 UTC; it waits until 2026-11-21 21:00 UTC
  7 calls so far, about 4,200 tokens each: 30,000 tokens more are worth about 7
  if denied, research-1 ends with 3 notes, analysis goes on with that, and the task ends partial
  approve: waystation approve task-1 --request r1 --add 30000
  or end with what there is: waystation deny task-1 --request r1 --finish partial

task-1  Why?
  research-1 makes no more calls: no credit
  7 calls so far, about 4,200 tokens each
  if denied, research-1 ends with 3 notes, analysis goes on with that, and the task ends partial
  when that is mended, go on: waystation approve task-1 --request r2
  or end with what there is: waystation deny task-1 --request r2 --finish partial\
""")


def test_a_task_tells_who_answered_and_where_that_was_sent_from() -> None:
    answered = ASKING.model_copy(update={"decision": "denied", "by": "Ada"})
    progress = PAUSED.progress.model_copy(update={"approvals": (answered,) * 5})
    view = TaskView(progress=progress, origins={"r1": Origin(identities=("ada@laptop (waystation)",))})
    told = "research-1 asked for 30,000 tokens after 7 calls; denied by Ada (a name as given; sent from ada@laptop"
    assert drawn(task_screen(view)).count(told) == 3
    assert "2 earlier answers" in drawn(task_screen(view))


def test_a_request_of_a_provider_that_stopped_says_what_there_is_and_nothing_of_money() -> None:
    halted = ASKING.model_copy(update={"asked": Amount(), "reason": "the account has no credit"})
    assert pause_text("task-1", halted) == snapshot("""\
Paused: research-1 makes no more calls: the account has no credit.
  so far: 3 notes; read it: waystation report task-1 --draft
  if denied, research-1 ends with 3 notes, analysis goes on with that, and the task ends partial
  when that is mended, go on: waystation approve task-1 --request r1
  or end with what there is: waystation deny task-1 --request r1 --finish partial\
""")
