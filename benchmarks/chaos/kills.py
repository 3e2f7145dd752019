"""Which process to kill and when, drawn from a seed before anything runs."""

from enum import StrEnum
from random import Random
from typing import NamedTuple


class Victim(StrEnum):
    """What is ended by SIGKILL."""

    WORKER = "worker"
    SERVER = "Temporal server"
    BOTH = "both at once"


class Moment(StrEnum):
    """From when on a kill waits."""

    ASKED = "while a call is under way"
    """From the next call on, anything from its request to work long after it."""
    REPLIED = "between a reply and its commit"
    """From the end of the next reply on: the worker has it, and has hardly committed it."""


VICTIMS = {Victim.WORKER: 6, Victim.SERVER: 3, Victim.BOTH: 1}
LONGEST_WAIT_S = {Moment.ASKED: 1.5, Moment.REPLIED: 0.02}


class Kill(NamedTuple):
    """One kill, and how long after its moment."""

    victim: Victim
    moment: Moment
    wait: float
    """Seconds."""


def draw_kills(kills: int, seed: int) -> list[Kill]:
    """The kills of a run: the same for the same seed."""
    chance = Random(seed)
    return [_kill(chance) for _ in range(kills)]


def _kill(chance: Random) -> Kill:
    (victim,) = chance.choices(list(VICTIMS), list(VICTIMS.values()))
    moment = chance.choice(list(Moment))
    return Kill(victim, moment, chance.uniform(0, LONGEST_WAIT_S[moment]))
