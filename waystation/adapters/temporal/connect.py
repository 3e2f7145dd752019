"""Reaching Temporal: which server, with which payloads, and a clear word when it is not there.

`TEMPORAL_ADDRESS` or `TEMPORAL_PROFILE` in the environment come first, then the run file of a live `waystation dev`,
then the default profile of Temporal's configuration file. Nothing is assumed beyond that: whatever answers at
Temporal's usual port may be somebody else's.
"""

import os
from pathlib import Path
from typing import NamedTuple

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfigProfile

from waystation.adapters.temporal.run_file import read_run_file
from waystation.domain.errors import Unreachable

DEFAULT_ADDRESS = "localhost:7233"
DEFAULT_NAMESPACE = "default"
NEXT_STEP = "start one with `waystation dev` (or `waystation up` in the background), or set TEMPORAL_ADDRESS"


class Target(NamedTuple):
    """A Temporal server to connect to."""

    profile: ClientConfigProfile
    ui_url: str | None

    @property
    def address(self) -> str:
        """Host and port; empty where no server is named and none of ours runs."""
        return self.profile.address or (DEFAULT_ADDRESS if named_in_environment() else "")

    @property
    def namespace(self) -> str:
        """The namespace that everything of ours lives in."""
        return self.profile.namespace or DEFAULT_NAMESPACE


def named_in_environment() -> bool:
    """Whether the environment names a server, so that no other is meant."""
    return bool(os.environ.get("TEMPORAL_ADDRESS") or os.environ.get("TEMPORAL_PROFILE"))


def find_target(run_file: Path, ui_url: str | None = None) -> Target:
    """Where to connect to. `ui_url` is the UI's address where a person has set one."""
    run = None if named_in_environment() else read_run_file(run_file)
    if run is not None and run.alive:
        profile = ClientConfigProfile(address=run.address, namespace=run.namespace)
        return Target(profile=profile, ui_url=ui_url or run.ui_url)
    return Target(profile=ClientConfigProfile.load(), ui_url=ui_url)


async def connect(target: Target) -> Client:
    """A connected client with pydantic payloads. Raises Unreachable."""
    if not target.address:
        raise Unreachable(f"no Temporal server runs here, and none is named: {NEXT_STEP}")
    options = target.profile.to_client_connect_config()
    options["target_host"] = target.address
    options["namespace"] = target.namespace
    try:
        return await Client.connect(**options, data_converter=pydantic_data_converter)
    except RuntimeError as error:
        # The bridge raises a bare RuntimeError whatever the cause: refused, unknown host, bad certificate.
        raise Unreachable(f"no Temporal server answers at {target.address}: {NEXT_STEP}") from error


def workflow_link(target: Target, workflow_id: str) -> str | None:
    """The page of a workflow in the Temporal UI; None where no UI is known."""
    if target.ui_url is None:
        return None
    return f"{target.ui_url.rstrip('/')}/namespaces/{target.namespace}/workflows/{workflow_id}"
