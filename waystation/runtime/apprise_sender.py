"""One message to people through Apprise, in a process of its own.

`python -P -m waystation.runtime.apprise_sender BOUNDS` reads what to send from its standard input, so that no address
stands in its arguments, and ends with 0 if the service took it. Apprise reads whole answers, however long they are and
however slowly they come: what bounds them is that this process has little memory, and is ended from outside.
"""

import json
import sys
from typing import TYPE_CHECKING, NamedTuple

from waystation.security.confinement import ResourceLimits, apply_bounds

if TYPE_CHECKING:
    from apprise import Apprise


class AppriseMessage(NamedTuple):
    """What is sent."""

    address: str
    """Of Apprise's, with its secrets."""
    title: str
    body: str
    patience_s: float
    """For each step of the service's."""


def build_apprise_service(address: str, patience_s: float) -> "Apprise | None":
    """What sends there; None if Apprise knows no such address. Needs the package apprise."""
    import apprise  # noqa: PLC0415 - of an extra

    to = apprise.Apprise(asset=apprise.AppriseAsset(app_id="Waystation", http_redirects=False))
    if not to.add(address):  # pyright: ignore[reportUnknownMemberType]: it takes more than one
        return None
    for service in to:
        # An address may ask for them: who is told would then say who else is.
        service.redirects = False
        # Apprise's own are 4 and 15 s. For mail the first is that of every step.
        service.socket_connect_timeout = service.socket_read_timeout = patience_s
    return to


def send_notification(letter: AppriseMessage) -> bool:
    """Send it; whether it was taken."""
    to = build_apprise_service(letter.address, letter.patience_s)
    if to is None:
        return False
    return bool(to.notify(body=letter.body, title=letter.title, body_format="text"))  # pyright: ignore[reportUnknownMemberType]


def main() -> None:
    """Send what stands on the standard input."""
    apply_bounds(ResourceLimits(**json.loads(sys.argv[1])))
    sys.exit(0 if send_notification(AppriseMessage(**json.load(sys.stdin))) else 1)


if __name__ == "__main__":
    main()
