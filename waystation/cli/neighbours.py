"""What other users of this machine can reach of us, as `waystation doctor` tells it."""

import os
import stat
from pathlib import Path
from urllib.parse import urlsplit

from waystation.adapters.temporal.run_file import read_run_file
from waystation.private_files import open_to_others
from waystation.settings import Settings

NAMED_PATHS = 3


def open_paths(settings: Settings) -> tuple[Path, ...]:
    """Files and folders of the home that others may use. Those in a folder that is closed to them are not reached."""
    home = settings.home
    if not _enterable(home):
        return ()
    inside = tuple(sorted(home.iterdir())) if os.access(home, os.R_OK) else ()
    return open_to_others((home, *inside))


def reach(settings: Settings) -> tuple[bool, str]:
    """Whether all is as closed as it can be, and who reaches what, with the next step where there is one."""
    paths = open_paths(settings)
    ports = _ports(settings)
    said = [_files(settings, paths)]
    if not ports:
        return not paths, said[0]
    said.append(f"every user of this machine reaches {', '.join(ports)}")
    if not settings.encrypts_payloads:
        said.append("they read there what Temporal keeps, and can answer requests: set WAYSTATION_KEY")
        return False, "; ".join(said)
    said.append(
        "what Temporal keeps is encrypted, and answers without the key are refused; they can still end tasks: share "
        "this machine, or run a Temporal server that asks who calls (docs/codec.md)"
    )
    return not paths, "; ".join(said)


def _files(settings: Settings, paths: tuple[Path, ...]) -> str:
    if not paths:
        return f"{settings.home} is this user's alone"
    names = " ".join(str(path) for path in paths[:NAMED_PATHS])
    more = f" and {len(paths) - NAMED_PATHS} more" if len(paths) > NAMED_PATHS else ""
    return f"others can use {names}{more}: `chmod -R go= {settings.home}`"


def _ports(settings: Settings) -> tuple[str, ...]:
    """What listens here without asking who calls."""
    found: list[str] = []
    run = read_run_file(settings.run_file)
    if run is not None and run.alive:
        found += [f"Temporal at {run.address}", f"its UI at {run.ui_url}"]
        if run.codec_endpoint is not None:
            found.append(f"the codec server at {urlsplit(run.codec_endpoint).netloc}, which asks for its secret path")
    for what, address in (("health", settings.health_address), ("metrics", settings.metrics_address)):
        if address is not None:
            found.append(f"{what} at {address}")
    return tuple(found)


def _enterable(folder: Path) -> bool:
    return folder.is_dir() and bool(folder.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))
