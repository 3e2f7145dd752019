from datetime import UTC, datetime

from inline_snapshot import snapshot
from rich.console import Console, RenderableType

from tests.support.progress_values import make_step_progress
from tests.support.view_values import PAUSED_PROGRESS_IN_DOLLARS, PAUSED_VIEW, PENDING_APPROVAL, USAGE, VIEWED_PROGRESS
from waystation.budgets.budget import RunUsage
from waystation.cli.render import (
    format_budget,
    format_progress,
    render_changes,
    render_task_screen,
    render_task_summary,
)
from waystation.documents.documents import DocumentsUpdate
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.usage import Usage
from waystation.models.profiles import OFFLINE_MODEL
from waystation.tasks.approvals import AnswerOrigin
from waystation.tasks.details import format_task_cost
from waystation.tasks.task import BudgetProgress, RejectedMessage, ReusedWork, StepState, TaskPhase, TaskProgress
from waystation.tasks.view import TaskView

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

COMPACTED = (
    "research-1: compaction c1 COMPRESSED, 9,100 to 4,300 tokens, 6 passages for memory (6 still waiting), 2 redactions"
)


def drawn(renderable: RenderableType, width: int = 120) -> str:
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        console.print(renderable, soft_wrap=True)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def screen(view: TaskView, width: int = 120) -> str:
    return drawn(render_task_screen(view, NOON, width), width)


def test_a_paused_task_shows_its_spending_its_compaction_and_how_to_go_on() -> None:
    assert screen(PAUSED_VIEW) == snapshot("""\
task-0123456789abcdef  paused  Which licences [red]do[/red] they carry?
41,200 of 200,000 tokens spent, 90,000 tokens reserved; 2 legs; 1 compaction; cost: $0.123456; 71% of the input cached;
model claude-sonnet-5-5
step        role      state    legs  spent  limit  why
research-1  research  paused   2     29.5k  30k
writing     writing   waiting  0     0      -
research-1: compaction c1 COMPRESSED, 9,100 to 4,300 tokens, 6 passages for memory (6 still waiting), 2 redactions
To undo a compaction: waystation restore task-0123456789abcdef --agent research-1 --compaction c1
Note: memory is down
research-1 asks for 30,000 tokens more: it has spent 29,500 of 30,000 tokens
  estimate   about 7 more calls at an average of 4,200 tokens, with room for the longest reply
  if denied  research-1 ends with 3 notes; analysis continues with this result; the report is partial
  waystation report task-0123456789abcdef --draft
  waystation approve task-0123456789abcdef --request r1 --add 30000
  waystation deny task-0123456789abcdef --request r1 --finish partial
http://127.0.0.1:8233/namespaces/default/workflows/task-0123456789abcdef\
""")


def test_a_screen_says_what_agents_may_draw_beyond_their_limits() -> None:
    steps = tuple(step.replace(drawable=Amount(tokens=77_000)) for step in PAUSED_VIEW.steps)
    assert "\nBeyond its limit, an agent may draw up to 77,000 tokens from what the task has left. " in screen(
        PAUSED_VIEW.replace(steps=steps)
    )


def test_models_that_differ_by_role_are_shown_with_their_roles() -> None:
    models = {"research": "claude-haiku-5-5", "analysis": "claude-haiku-5-5", "writing": "claude-opus-5-5"}
    assert format_budget(TaskView.from_progress(VIEWED_PROGRESS.replace(models=models))).endswith(
        "; models claude-haiku-5-5 (research), claude-haiku-5-5 (analysis), claude-opus-5-5 (writing)"
    )


def test_a_fork_says_which_of_its_legs_and_compactions_are_of_agents_that_it_reuses() -> None:
    (made,) = VIEWED_PROGRESS.compactions
    forked = VIEWED_PROGRESS.replace(
        legs=5,
        compactions=(made, made.replace(agent="writing")),
        reused=ReusedWork(task_id="task-1", agents=("research-1",)),
    )
    assert "; 5 legs (2 by reused agents); 2 compactions (1 by reused agents); " in format_budget(
        TaskView.from_progress(forked)
    )
    assert "; 5 legs; 2 compactions; " in format_budget(TaskView.from_progress(forked.replace(reused=None)))


def test_a_screen_shows_the_newest_compactions_and_counts_the_others() -> None:
    many = VIEWED_PROGRESS.replace(compactions=VIEWED_PROGRESS.compactions * 5)
    shown = screen(TaskView.from_progress(many))
    assert shown.count("COMPRESSED") == 3
    assert "2 earlier compactions" in shown


def test_a_screen_names_the_session_by_which_later_tasks_go_on() -> None:
    assert "Session own-0123456789ab" in screen(PAUSED_VIEW.replace(session="own-0123456789ab"))
    assert "Session" not in screen(PAUSED_VIEW)


def test_what_happened_is_told_once_and_in_sentences() -> None:
    assert render_changes(None, PAUSED_VIEW, NOON, 120) == snapshot(
        (
            "research-1 is paused: 29,500 of 30,000 tokens spent",
            "1 earlier compaction",
            "Note: memory is down",
            "task-0123456789abcdef is paused",
            """\
research-1 asks for 30,000 tokens more: it has spent 29,500 of 30,000 tokens
  estimate   about 7 more calls at an average of 4,200 tokens, with room for the longest reply
  if denied  research-1 ends with 3 notes; analysis continues with this result; the report is partial
  waystation report task-0123456789abcdef --draft
  waystation approve task-0123456789abcdef --request r1 --add 30000
  waystation deny task-0123456789abcdef --request r1 --finish partial\
""",
        )
    )
    assert render_changes(PAUSED_VIEW, PAUSED_VIEW, NOON, 120) == ()


def test_what_was_there_before_the_first_look_is_counted_and_what_happens_after_it_is_told() -> None:
    before = VIEWED_PROGRESS.replace(compactions=())
    assert render_changes(TaskView.from_progress(before), PAUSED_VIEW, NOON, 120) == (COMPACTED,)
    answered = PENDING_APPROVAL.replace(decision="approved", granted=Amount(tokens=30_000), by="ada")
    refused = RejectedMessage(signal="approve_budget", reason="no request waits", at=datetime(2026, 1, 1, tzinfo=UTC))
    going_on = VIEWED_PROGRESS.replace(
        phase=TaskPhase.WORKING, approvals=(answered,), rejected_messages=(refused, refused)
    )
    assert render_changes(None, TaskView.from_progress(going_on), NOON, 120) == (
        "research-1 is paused: 29,500 of 30,000 tokens spent",
        "1 earlier compaction",
        "Note: memory is down",
        "task-0123456789abcdef is working",
        "1 earlier answer",
        "2 earlier rejected messages",
    )


def test_a_forked_task_tells_its_own_compactions_alone_one_by_one() -> None:
    begun = VIEWED_PROGRESS.replace(compactions=())
    (made,) = VIEWED_PROGRESS.compactions
    own = made.replace(agent="writing")
    reusing = VIEWED_PROGRESS.replace(
        compactions=(made, own), reused=ReusedWork(task_id="task-1", agents=(made.agent,))
    )
    again = reusing.replace(compactions=(made, own, made.replace(tokens_before=8_000)))
    assert render_changes(TaskView.from_progress(begun), TaskView.from_progress(reusing), NOON, 120) == (
        "1 earlier compaction",
        COMPACTED.replace("research-1", "writing"),
    )
    assert render_changes(TaskView.from_progress(reusing), TaskView.from_progress(again), NOON, 120) == (
        COMPACTED.replace("9,100", "8,000"),
    ), "the reused agent was rewound"


def test_a_summary_has_state_progress_cost_what_waits_and_the_next_command() -> None:
    def summary(progress: TaskProgress) -> str:
        return drawn(render_task_summary(TaskView.from_progress(progress)), 80)

    assert summary(VIEWED_PROGRESS) == snapshot("""\
task-0123456789abcdef  paused  Which licences [red]do[/red] they carry?
Progress   0 of 2 steps done; paused: research-1
Cost       $0.123456; 41,200 of 200,000 tokens spent
Waits      research-1: 30,000 tokens more
Note       memory is down
Next       waystation approvals task-0123456789abcdef\
""")
    ended = VIEWED_PROGRESS.replace(phase=TaskPhase.DONE, approvals=(), notes=())
    assert summary(ended.replace(report="a" * 64)) == snapshot("""\
task-0123456789abcdef  done  Which licences [red]do[/red] they carry?
Progress   0 of 2 steps done; paused: research-1
Cost       $0.123456; 41,200 of 200,000 tokens spent
Next       waystation report task-0123456789abcdef\
""")
    assert summary(ended.replace(phase=TaskPhase.FAILED)).endswith("waystation show task-0123456789abcdef --verbose")
    assert summary(ended.replace(phase=TaskPhase.WORKING)).endswith("waystation watch task-0123456789abcdef")
    assert summary(ended.replace(phase=TaskPhase.PLANNING, steps=())).splitlines()[1] == "Progress   no plan yet"


def test_only_steps_that_are_done_count_as_done_and_the_other_ends_are_named() -> None:
    ends: tuple[StepState, ...] = ("done", "done", "partial", "skipped")
    steps = tuple(make_step_progress(f"research-{number}", state) for number, state in enumerate(ends))
    cancelled = VIEWED_PROGRESS.replace(phase=TaskPhase.CANCELLED, steps=steps)
    assert format_progress(TaskView.from_progress(cancelled)) == "2 of 4 steps done, 1 partial, 1 skipped"
    assert format_progress(TaskView.from_progress(cancelled.replace(steps=steps[:2]))) == "2 of 2 steps done"


def test_answers_and_refusals_are_told() -> None:
    answered = PENDING_APPROVAL.replace(decision="approved", granted=Amount(tokens=30_000), by="ada")
    refused = RejectedMessage(signal="approve_budget", reason="no request waits", at=datetime(2026, 1, 1, tzinfo=UTC))
    going_on = VIEWED_PROGRESS.replace(phase=TaskPhase.WORKING, approvals=(answered,), rejected_messages=(refused,))
    assert render_changes(PAUSED_VIEW, TaskView.from_progress(going_on), NOON, 120) == snapshot(
        (
            "task-0123456789abcdef is working",
            "research-1 asked for 30,000 tokens after 7 calls; 30,000 tokens approved by ada (name not verified)",
            "Rejected `approve_budget`: no request waits",
        )
    )


def test_a_task_with_a_budget_in_dollars_shows_them_everywhere_and_a_command_that_a_shell_takes() -> None:
    assert screen(TaskView.from_progress(PAUSED_PROGRESS_IN_DOLLARS)) == snapshot("""\
task-0123456789abcdef  paused  Which licences [red]do[/red] they carry?
41,200 of 200,000 tokens and $0.70 of $2.00 spent, 90,000 tokens and $1.00 reserved; 2 legs; 1 compaction; cost:
$0.123456; 71% of the input cached; model claude-sonnet-5-5
step        role      state   legs  spent  limit  why
research-1  research  paused  2     $0.45  $0.50
research-1: compaction c1 COMPRESSED, 9,100 to 4,300 tokens, 6 passages for memory (6 still waiting), 2 redactions
To undo a compaction: waystation restore task-0123456789abcdef --agent research-1 --compaction c1
Note: memory is down
research-1 asks for $0.50 more: it has spent $0.45 of $0.50
  estimate   about 7 more calls at an average of $0.064, with room for the longest reply
  if denied  research-1 ends with 3 notes; analysis continues with this result; the report is partial
  waystation report task-0123456789abcdef --draft
  waystation approve task-0123456789abcdef --request r1 --add '$0.50'
  waystation deny task-0123456789abcdef --request r1 --finish partial\
""")


def test_a_cost_without_a_price_is_unknown_and_not_zero() -> None:
    unpriced = VIEWED_PROGRESS.replace(totals=RunUsage(usage=USAGE, cost_micro_usd=None))
    assert TaskView.from_progress(unpriced).cost_usd is None
    assert format_task_cost(TaskView.from_progress(unpriced)) == "price unknown"
    assert format_task_cost(TaskView.from_progress(unpriced.replace(model=OFFLINE_MODEL))) == "price unknown"


def test_a_budget_shows_the_units_that_it_has_and_no_others() -> None:
    dear = PAUSED_PROGRESS_IN_DOLLARS.replace(
        budget=BudgetProgress(limit=Limit(micro_usd=500_000), spent=Amount(tokens=9, micro_usd=7), reserved=Amount())
    )
    assert format_budget(TaskView.from_progress(dear)).startswith("$0.000007 of $0.50 spent, $0.00 reserved; ")


def test_on_a_narrow_terminal_words_are_wrapped_and_numbers_ids_and_commands_are_not() -> None:
    lines = screen(PAUSED_VIEW, 50).splitlines()
    assert "  waystation approve task-0123456789abcdef --request r1 --add 30000" in lines
    assert "writing     writing   waiting  0     0      -" in lines
    assert max(len(line) for line in lines if "task-" not in line) <= 50


def test_a_task_tells_who_answered_and_where_that_was_sent_from() -> None:
    answered = PENDING_APPROVAL.replace(decision="denied", by="Ada")
    progress = VIEWED_PROGRESS.replace(approvals=(answered,) * 5)
    view = TaskView.from_progress(progress).with_origins({"r1": AnswerOrigin(identities=("ada@laptop (waystation)",))})
    told = "research-1 asked for 30,000 tokens after 7 calls; denied by Ada (name not verified; sent from ada@laptop"
    assert screen(view).count(told) == 3
    assert "2 earlier answers" in screen(view)


def test_updates_of_the_documents_are_counted_once_the_store_has_them() -> None:
    asked = DocumentsUpdate(number=1, document_set="0" * 64, by="Ada", updated_at=NOON)
    kept = asked.replace(stored=True, changed=2, removed=1)
    for updates, shown in (((asked,), False), ((asked, kept), True)):
        view = TaskView.from_progress(VIEWED_PROGRESS.replace(document_updates=updates))
        assert ("Documents updated by Ada: 2 changed, 1 removed" in screen(view)) is shown


def test_what_was_possibly_billed_at_a_price_that_nobody_knows_does_not_count_as_nothing() -> None:
    silent = RunUsage(possibly_billed=29_487)
    asked = VIEWED_PROGRESS.replace(
        model="local::m",
        totals=silent,
        budget=BudgetProgress(limit=Limit(tokens=60_000), spent=Amount(), reserved=Amount()),
    )
    assert format_task_cost(TaskView.from_progress(asked)) == "price unknown"
    assert TaskView.from_progress(asked).cost_usd is None
    in_dollars = BudgetProgress(limit=Limit(micro_usd=1_000_000), spent=Amount(), reserved=Amount())
    free = silent.replace(usage=Usage(input=9))
    priced = silent.replace(possibly_billed_micro_usd=90_000)
    for known in (
        asked.replace(model=OFFLINE_MODEL),
        asked.replace(budget=in_dollars),
        asked.replace(totals=free),
        asked.replace(totals=priced),
    ):
        assert format_task_cost(TaskView.from_progress(known)) == "$0.00"
