"""`waystation deploy`: which build of the workers gets new tasks, and which builds still have some."""

import asyncio
from typing import Annotated

import typer

from waystation.cli.console import print_item, print_json, print_message, print_text
from waystation.cli.options import JsonOption
from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput
from waystation.kernel.temporal_names import QUEUE_PREFIX, QUEUES
from waystation.kernel.text import format_count
from waystation.kernel.value import Value
from waystation.runtime.temporal.connect import connect_as_person, resolve_temporal_target
from waystation.runtime.temporal.deployment_client import (
    BuildStatus,
    TemporalDeploymentClient,
    find_previous_build,
)

app = typer.Typer()
deploy = typer.Typer(
    name="deploy",
    help="Choose the build of workers that new tasks go to, or roll back to the previous build.",
    no_args_is_help=True,
)
app.add_typer(deploy)

HANG = 2


class DeploymentJson(Value):
    """What `deploy use` and `deploy rollback` print."""

    build_id: str
    """The current build."""
    nudged: int
    """Tasks of other builds that were woken to move to this one."""


@deploy.callback()
def _deploy() -> None:
    """Choose the build of workers that new tasks go to, or roll back to the previous build."""


@deploy.command("status")
def show_status(as_json: JsonOption = False) -> None:
    """List the builds, with their workers and the tasks that keep them in use."""
    builds = asyncio.run(_list())
    if as_json:
        print_json(builds)
        return
    for build in builds:
        print_item(format_build(build), HANG)


@deploy.command("use")
def use_build(
    build_id: Annotated[str, typer.Argument(metavar="BUILD", help="Build id, from `deploy status`.")],
    as_json: JsonOption = False,
) -> None:
    """Send new tasks to a build, and let the tasks of other builds move to it as soon as they can.

    The build must have workers on all queues. The command is safe to run repeatedly.
    """
    _report(asyncio.run(_use(build_id)), as_json=as_json)


@deploy.command("rollback")
def roll_back(as_json: JsonOption = False) -> None:
    """Send new tasks to the build that was current before, and let other tasks move to it, as `deploy use` does."""
    _report(asyncio.run(_use(None)), as_json=as_json)


def _report(done: DeploymentJson, *, as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    print_text(f"The build {done.build_id} is current: new tasks go to it.")
    if done.nudged:
        tasks = format_count(done.nudged, "task")
        print_message(
            f"{tasks} of other builds will move to this build when the current activities of the agents end. Keep the "
            "workers of the other builds running until `waystation deploy status` shows no tasks for them."
        )


async def _client() -> TemporalDeploymentClient:
    return TemporalDeploymentClient(await connect_as_person(resolve_temporal_target(Settings())))


async def _list() -> tuple[BuildStatus, ...]:
    return await (await _client()).list_builds()


async def _use(build_id: str | None) -> DeploymentJson:
    """Make a build current; None: the previous one."""
    deployment = await _client()
    if build_id is None:
        previous = find_previous_build(await deployment.list_builds())
        if previous is None:
            raise BadInput("there is no earlier build to roll back to: `waystation deploy status` lists all builds")
        build_id = previous.build_id
    await deployment.set_current(build_id)
    return DeploymentJson(build_id=build_id, nudged=await deployment.nudge_tasks())


def format_build(build: BuildStatus) -> str:
    """Format a build in one line."""
    others = build.workflows - build.tasks
    held = format_count(build.tasks, "task") + (f" and {format_count(others, 'other workflow')}" if others else "")
    return f"{build.build_id}  {build.state}  {held}; {_format_workers(build)}"


def _format_workers(build: BuildStatus) -> str:
    missing = [name for name in (queue.removeprefix(QUEUE_PREFIX) for queue in QUEUES) if name not in build.queues]
    if len(missing) == len(QUEUES):
        return "no workers" + (
            ": start workers of this build, or its workflows wait for ever" if build.workflows else ""
        )
    return "workers on all queues" if not missing else f"no workers on {', '.join(missing)}"
