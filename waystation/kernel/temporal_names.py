"""Names by which the Temporal server knows workflows, their updates and errors, task queues and search attributes.

The names of what people send to a task are in `waystation.tasks.signals`.
"""

WORKFLOWS_QUEUE = "waystation-workflows"
AGENTS_QUEUE = "waystation-agents"
CONTEXT_QUEUE = "waystation-context"
QUEUES = (WORKFLOWS_QUEUE, AGENTS_QUEUE, CONTEXT_QUEUE)
QUEUE_PREFIX = "waystation-"


def make_deployment_name(prefix: str) -> str:
    """Return the name of the worker deployment of the installation with this prefix. It may contain no dot."""
    return f"{QUEUE_PREFIX}{prefix}".rstrip("-.")


def add_installation_prefix(prefix: str, name: str) -> str:
    """Return the name of a queue, workflow or schedule on the server for the installation with this prefix."""
    return name if name.startswith(prefix) else prefix + name


def get_installation_prefix(queue: str) -> str:
    """Return the installation's prefix of a task queue's name on the server; empty if it has none."""
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
"""Type of the error with which a session rejects an update while it continues as new; the caller sends it again."""

TASK_WORKFLOW = "Task"
BUDGET_ANSWER = "budget_answer"
SUBAGENT_NEWS = "subagent_news"
DEPLOYMENT_CHANGED = "deployment_changed"
PROGRESS = "progress"
PHASE = "phase"

UNEXPECTED_FAILURE = "UnexpectedFailure"
"""Type of the error of an activity that was given up after repeated errors of no known kind."""

SUBAGENT_WORKFLOW = "Subagent"
NOTIFICATION_WORKFLOW = "Notice"

SEARCH_MEMORY = "SearchMemory"
COUNT_PASSAGES = "CountPassages"

FORGET_WORKFLOW = "Forget"
RETENTION_WORKFLOW = "Retention"
ERASE_WORKFLOW = "ErasePerson"
SCHEDULED_RUN_WORKFLOW = "ScheduledRun"
TASK_ENDED = "task_ended"


SCHEDULE_ID_PREFIX = "schedule-"
"""Prefix of the ids of schedules, and so of the workflow ids of their runs."""
_RUN_TIME = len("-2026-11-23T07:00:00Z")


def get_encryption_context(workflow_id: str) -> str:
    """Return the context that payloads of this workflow are encrypted for: its id; for a scheduled run, the schedule's
    id.

    A schedule's name has no capital letters. The server passes the last run's result to the next run, and passes each
    run what was encrypted before any run had an id.
    """
    return (
        workflow_id[:-_RUN_TIME]
        if workflow_id.startswith(SCHEDULE_ID_PREFIX) and workflow_id.endswith("Z")
        else workflow_id
    )


def make_retention_workflow_id(store_id: str) -> str:
    """Return the workflow id of the store's retention, which forgets tasks when their time is over."""
    return f"retention-{store_id}"


def make_indexing_workflow_id(task_id: str) -> str:
    """Return the workflow id of indexing a task's documents into memory."""
    return f"remember-{task_id}"


def make_notification_id_prefix(task_id: str) -> str:
    """Return the prefix of the workflow ids of a task's notifications."""
    return f"notice-{task_id}-"


TENANT_ATTRIBUTE = "WaystationTenant"
SESSION_ATTRIBUTE = "WaystationSession"
PHASE_ATTRIBUTE = "WaystationPhase"
TOKENS_ATTRIBUTE = "WaystationTokens"
COST_ATTRIBUTE = "WaystationCostUsd"
PENDING_ATTRIBUTE = "WaystationPendingApprovals"

SESSION_PRIORITY = 2
TASK_PRIORITY = 3
SCHEDULED_TASK_PRIORITY = 4
"""Priority keys of workflows, the most urgent first: submissions are admitted before agents take their next turns, and
scheduled tasks wait behind those that a person submitted. Children and activities inherit the key.
"""

TOOL_SECRETS = "tool-secrets"
"""Used instead of a tenant's hash in the vault: these secrets belong to all tenants, like the tool server file that
names them.
"""
