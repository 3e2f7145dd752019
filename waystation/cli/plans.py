"""`waystation plan`: prints a task's plan as YAML, with comments for the reader, and replaces it while it waits for
approval.
"""

import asyncio
import os
import shlex
import subprocess
from getpass import getuser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
import yaml
from pydantic import JsonValue, TypeAdapter, ValidationError

from waystation.cli.approvals import describe_previous_answer, report_and_exit
from waystation.cli.console import print_json, print_text
from waystation.cli.options import ByOption, JsonOption, NoteOption, TaskArgument
from waystation.cli.render import format_count
from waystation.client import connect_client
from waystation.client.approvals import PlannedTask
from waystation.config.settings import Settings
from waystation.kernel.amount import format_limit, format_used_amount
from waystation.kernel.errors import BadInput
from waystation.kernel.files import create_private_folder, write_private_file
from waystation.kernel.value import extract_validation_faults
from waystation.planning.plan import MAX_PLAN_CHARACTERS, Plan, find_plan_errors
from waystation.reports.task_files import get_plan_path
from waystation.security.untrusted import replace_control_characters
from waystation.tasks.signals import AnswerResult

app = typer.Typer()
MENTIONED = 20
"""Maximum number of documents that are named; of more, only the number is shown."""


@app.command()
def plan(
    task: TaskArgument,
    edit: Annotated[bool, typer.Option("--edit", help="Edit the plan in $EDITOR, and submit the result.")] = False,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="YAML file to submit as the plan, in the format that this command prints."),
    ] = None,
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a task's plan, or replace it while it waits for approval."""
    if edit and file is not None:
        raise BadInput("--edit and --file cannot be combined: edit the plan, or give a file")
    settings = Settings()
    if file is not None:
        answer = asyncio.run(_replanned(settings, task, parse_plan(read_plan_file(file)), by or getuser(), note))
        report_and_exit(answer, "refused", as_json=as_json)
    planned = asyncio.run(_planned(settings, task))
    if edit:
        report_and_exit(_of_editor(settings, planned, by or getuser(), note), "refused", as_json=as_json)
    print_json(planned) if as_json else print_text(render_plan_text(planned))


def _of_editor(settings: Settings, planned: PlannedTask, by: str, note: str) -> AnswerResult:
    """Let a person edit the plan, and submit it. A plan that was refused is saved. Raises BadInput, Unreachable."""
    task_id, before = planned.task.task_id, render_plan_text(planned)
    if planned.task.pending_plan_limit is None:
        raise BadInput(f"the plan of {task_id} is not waiting for approval, so it cannot be changed")
    written = edit_in_editor(before)
    if written is None:
        raise BadInput("the plan was not changed, so nothing was sent: `waystation approve` approves it as it is")
    kept = get_plan_path(create_private_folder(settings.reports_folder), task_id)
    write_private_file(kept, written.encode())
    taken = False
    try:
        answer = asyncio.run(_replanned(settings, task_id, parse_plan(written), by, note))
        taken = answer.outcome != "refused"
    except BadInput as refused:
        raise BadInput(
            f"{refused}; your plan is saved in {kept}: correct it there, and submit it with --file"
        ) from refused
    finally:
        if taken:
            kept.unlink()
    return answer if taken else answer.replace(reason=f"{answer.reason}; your plan is saved in {kept}")


def edit_in_editor(text: str) -> str | None:
    """Open the text in the person's editor.

    Returns the edited text; None if it is unchanged. Raises BadInput without an editor.
    """
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with TemporaryDirectory(prefix="waystation-plan-") as folder:
        file = Path(folder) / "plan.yaml"
        file.write_text(f"{text}\n", encoding="utf-8")
        try:
            subprocess.run([*editor, str(file)], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise BadInput(
                f"the editor {editor[0]} failed, and nothing was sent: set VISUAL or EDITOR to another editor, or use "
                "--file"
            ) from error
        written = read_plan_file(file)
    return written if written.strip() != text.strip() else None


def render_plan_text(planned: PlannedTask) -> str:
    """Render the plan as a person reads and edits it."""
    # YAML allows no control characters, not even in comments, and document names are untrusted.
    return "\n".join(
        [*(f"# {replace_control_characters(remark)}" for remark in _remarks(planned)), format_plan_yaml(planned.plan)]
    )


def _remarks(planned: PlannedTask) -> list[str]:
    """Return comment lines, which are ignored when the plan is parsed."""
    budget, seen, names = planned.task.budget, planned.typical_usage, planned.documents
    more = f" and {len(names) - MENTIONED} more" if len(names) > MENTIONED else ""
    lines = [f"{planned.task.task_id} has spent {format_used_amount(budget.spent, budget.limit)}."]
    lines += [f"Step {step.id} may spend {format_limit(step.limit)}." for step in planned.task.steps]
    if (left := planned.task.pending_plan_limit) is not None:
        lines.append(
            f"All steps together may spend {format_limit(left)}. Set the share of a step with "
            "`share: 40k`, `share: $0.40` or `share: 25%`."
        )
    if seen is not None:
        lines.append(
            f"In {format_count(seen.tasks, 'earlier task')}, a step took {seen.median:,} tokens on average (median "
            f"of the tasks); in 80% of the tasks, it took {seen.minimum:,} to {seen.maximum:,}."
        )
    if names:
        lines.append(f"Agents may read {', '.join(' '.join(name.split()) for name in names[:MENTIONED])}{more}.")
    return lines


def format_plan_yaml(plan: Plan) -> str:
    """Format the plan alone, as it is parsed again."""
    steps = [step.model_dump(mode="json", exclude=None if step.share else {"share"}) for step in plan.steps]
    return yaml.safe_dump({"steps": steps}, sort_keys=False, allow_unicode=True, width=100).rstrip()


_CONTENT = TypeAdapter[JsonValue](JsonValue)


def parse_plan(written: str) -> Plan:
    """Parse an edited plan and check that it can run. Raises BadInput with everything that is wrong."""
    if len(written) > MAX_PLAN_CHARACTERS:
        raise BadInput(f"the plan has more than {MAX_PLAN_CHARACTERS:,} characters: shorten it")
    try:
        # An anchor that is referenced a thousand times would be copied a thousand times.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(written, yaml.SafeLoader)):
            raise BadInput("the plan cannot be read: it has YAML aliases (*name); replace each alias with its value")
        content = _CONTENT.validate_python(yaml.safe_load(written))
        plan = Plan.model_validate_json(_CONTENT.dump_json(content))
    except yaml.YAMLError as error:
        raise BadInput(f"the plan is not valid YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        faults = (f"{_place(fault.place)}: {fault.words}" for fault in extract_validation_faults(error))
        raise BadInput(f"the plan cannot be read: {'; '.join(faults)}") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(
            "the plan cannot be read: a number in it is too long, or its lists are nested too deeply"
        ) from error
    if faults := find_plan_errors(plan):
        raise BadInput(f"the plan cannot run: {'; '.join(faults)}")
    return plan


def _place(place: tuple[int | str, ...]) -> str:
    """Format a location in the plan, with steps counted from 1."""
    match place:
        case ("steps", int(step), *field):
            return ".".join((f"step {step + 1}", *map(str, field)))
        case _:
            return ".".join(map(str, place)) or "the plan"


def read_plan_file(file: Path) -> str:
    """Read a plan file. Raises BadInput."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadInput(f"--file {file} cannot be read ({why}): give a plan as YAML in UTF-8") from error


async def _planned(settings: Settings, task: str) -> PlannedTask:
    async with await connect_client(settings) as client:
        return await client.get_planned_task(await client.resolve_task_id(task))


async def _replanned(settings: Settings, task: str, plan: Plan, by: str, note: str) -> AnswerResult:
    """Submit the plan. A refusal names who answered before. Raises BadInput, Unreachable."""
    async with await connect_client(settings) as client:
        task_id = await client.resolve_task_id(task)
        phase = (await client.get_task(task_id)).phase
        if phase.over:
            answer = AnswerResult(outcome="refused", reason=f"{task_id} has ended: {phase}")
        else:
            answer = await client.review_plan(task_id, plan, by, note)
        if answer.outcome != "refused":
            return answer
        view = await client.get_task(task_id, details=True)
        asked = next((asked.request_id for asked in view.approvals if asked.about_plan), None)
        before = describe_previous_answer(view, asked) if asked is not None else ""
        return answer.replace(reason=f"{answer.reason}: {before}") if before else answer
