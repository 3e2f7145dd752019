"""The names under which the Temporal server knows workflows, messages among them, task queues and search attributes.

What people send to a task has its names in the table of `signals`.
"""

WORKFLOWS_QUEUE = "waystation-workflows"
AGENTS_QUEUE = "waystation-agents"
CONTEXT_QUEUE = "waystation-context"
QUEUES = (WORKFLOWS_QUEUE, AGENTS_QUEUE, CONTEXT_QUEUE)
QUEUE_PREFIX = "waystation-"


def add_installation_prefix(prefix: str, name: str) -> str:
    """A queue, or an id of a workflow or schedule, as the installation with this prefix has it on the server."""
    return name if name.startswith(prefix) else prefix + name


def get_installation_prefix(queue: str) -> str:
    """The prefix of the installation whose task queue has this name on the server; empty where it has none."""
    prefix, begin, _ = queue.partition(QUEUE_PREFIX)
    return prefix if begin else ""


SESSION_WORKFLOW = "Session"
SUBMIT_TASK = "submit_task"
REWIND_TASK = "rewind_task"
ADMIT_TASK = "admit_task"
ADMISSION_ANSWER = "admission_answer"
SET_SESSION_LIMIT = "set_session_limit"
ASK_BUDGET = "ask_budget"
TASK_GRANTED = "task_granted"
TASK_FINISHED = "task_finished"

SESSION_CONTINUES = "SessionContinues"
"""Type of the error with which a session rejects an update while it continues as new: send it again."""

TASK_WORKFLOW = "Task"
BUDGET_ANSWER = "budget_answer"
SUBAGENT_NEWS = "subagent_news"
PROGRESS = "progress"

SUBAGENT_WORKFLOW = "Subagent"

SEARCH_MEMORY = "SearchMemory"
COUNT_PASSAGES = "CountPassages"

FORGET_WORKFLOW = "Forget"
RETENTION_WORKFLOW = "Retention"
ERASE_WORKFLOW = "ErasePerson"
SCHEDULED_RUN_WORKFLOW = "ScheduledRun"


SCHEDULE_ID_PREFIX = "schedule-"
"""What the ids of schedules begin with, and so those of their runs."""
_RUN_TIME = len("-2026-11-23T07:00:00Z")


def get_encryption_context(workflow_id: str) -> str:
    """What a payload of this workflow is sealed for: its id; of a run of a schedule, that of the schedule. The name of
    one has no capital.

    The server hands the next run how the last one ended, and each of them what was sealed before any had an id.
    """
    return (
        workflow_id[:-_RUN_TIME]
        if workflow_id.startswith(SCHEDULE_ID_PREFIX) and workflow_id.endswith("Z")
        else workflow_id
    )


def make_retention_workflow_id(store_id: str) -> str:
    """Workflow id of what forgets the tasks of a store when their time is over."""
    return f"retention-{store_id}"


def make_indexing_workflow_id(task_id: str) -> str:
    """Workflow id of what brings a task's documents into memory."""
    return f"remember-{task_id}"


def make_notification_id_prefix(task_id: str) -> str:
    """What the workflow ids of a task's notices begin with."""
    return f"notice-{task_id}-"


SESSION_ATTRIBUTE = "WaystationSession"
PHASE_ATTRIBUTE = "WaystationPhase"
TOKENS_ATTRIBUTE = "WaystationTokens"
COST_ATTRIBUTE = "WaystationCostUsd"
PENDING_ATTRIBUTE = "WaystationPendingApprovals"

TOOL_SECRETS = "tool-secrets"
"""Where a tenant's hash stands in the vault: of all tenants, as the file of tool servers that names them is."""
