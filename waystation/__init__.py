"""Waystation: long-running research, analysis and writing agents on Temporal.

From Python: `from waystation import Waystation`, or `AsyncWaystation`; docs/how-to/use-from-python.md.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waystation.kernel import errors as errors
    from waystation.sdk import AsyncWaystation as AsyncWaystation
    from waystation.sdk import Waystation as Waystation

__version__ = "0.2.0"
"""The only place that names the version: the distributions are built with it."""


def __getattr__(name: str) -> Any:
    """The clients, once they are asked for: commands and workflows do not load them."""
    if name in {"AsyncWaystation", "Waystation"}:
        from waystation import sdk  # noqa: PLC0415

        return getattr(sdk, name)
    if name == "errors":
        from waystation.kernel import errors  # noqa: PLC0415

        return errors
    raise AttributeError(f"module 'waystation' has no attribute {name!r}")
