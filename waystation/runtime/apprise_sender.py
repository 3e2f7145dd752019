"""Sends one message to people through Apprise, in a process of its own.

`python -P -m waystation.runtime.apprise_sender BOUNDS` reads the message from its standard input, so that no address
appears in its arguments, and exits with 0 if the service accepted it. Apprise reads whole answers, however long and
slow they are; they are bounded because this process has little memory and is ended from outside.
"""

import json
import sys
from typing import TYPE_CHECKING, NamedTuple

from waystation.security.confinement import ResourceLimits, apply_resource_limits

if TYPE_CHECKING:
    from apprise import Apprise


class AppriseMessage(NamedTuple):
    """The message to send."""

    address: str
    """Apprise URL, with its secrets."""
    title: str
    body: str
    patience_s: float
    """Timeout of each step of the service, in seconds."""


def build_apprise_service(address: str, patience_s: float) -> "Apprise | None":
    """Build the sender; None if Apprise does not know such an address. Needs the package apprise."""
    import apprise  # noqa: PLC0415 - of an extra

    to = apprise.Apprise(asset=apprise.AppriseAsset(app_id="Waystation", http_redirects=False))
    if not to.add(address):  # pyright: ignore[reportUnknownMemberType]: it takes more than one
        return None
    for service in to:
        # An address may ask for them: recipients would then see the other recipients.
        service.redirects = False
        # Apprise's defaults are 4 and 15 s. For mail the first applies to every step.
        service.socket_connect_timeout = service.socket_read_timeout = patience_s
    return to


def send_notification(letter: AppriseMessage) -> bool:
    """Send the message. Returns whether it was accepted."""
    to = build_apprise_service(letter.address, letter.patience_s)
    if to is None:
        return False
    return bool(to.notify(body=letter.body, title=letter.title, body_format="text"))  # pyright: ignore[reportUnknownMemberType]


def main() -> None:
    """Send the message on the standard input."""
    apply_resource_limits(ResourceLimits(**json.loads(sys.argv[1])))
    sys.exit(0 if send_notification(AppriseMessage(**json.load(sys.stdin))) else 1)


if __name__ == "__main__":
    main()
