"""The only list of passthrough modules: what a workflow's sandbox shares with the worker instead of importing it again.

Importing these again costs tens of milliseconds and over a megabyte for every workflow instance. They hold no mutable
state, and a linter bans clock, randomness and environment in them; tests also run all workflows in a strict sandbox.
"""

from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from waystation.kernel.value import compile_validators

SHARED_WORKFLOW_MODULES = (
    "agent_runner",
    "approvals",
    "options",
    "payload_limit",
    "stored_state",
    "task_finalizer",
    "task_runtime",
)
"""Helper modules of the workflows. Modules that define a workflow type are imported again for each instance."""
CAPABILITIES = (
    "agents",
    "budgets",
    "config",
    "context",
    "documents",
    "erasure",
    "kernel",
    "mcp",
    "memory",
    "models",
    "planning",
    "privacy",
    "reports",
    "security",
    "store",
    "tasks",
)
"""The core's folders, without those that run processes, serve pages or contact people."""
PASSTHROUGH_MODULES = (
    *(f"waystation.{capability}" for capability in CAPABILITIES),
    "waystation.activities",
    "pydantic",
    *(f"waystation.workflows.{module}" for module in SHARED_WORKFLOW_MODULES),
)


def create_sandboxed_runner() -> SandboxedWorkflowRunner:
    """Create the workflow runner that production uses.

    Validators are compiled before: a workflow task that compiled them itself could exceed the two seconds after which
    the SDK takes it for deadlocked.
    """
    compile_validators()
    return SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules(*PASSTHROUGH_MODULES)
    )
