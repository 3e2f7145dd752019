"""What looks over the work of a task: revisions of its plan, reviews of its report. Numbers and ids, no text."""

from waystation.domain.amount import Limit
from waystation.domain.budget import RunTotals
from waystation.domain.value import Value


def revision_id(number: int) -> str:
    """In the place of a step's id: the agent run that revises the plan."""
    return f"revision-{number}"


def review_id(number: int) -> str:
    """In the place of a step's id: the agent run that reviews the report."""
    return f"review-{number}"


class PlanRevision(Value):
    """One look at the plan after the research. Steps by their ids."""

    number: int
    version: int | None = None
    """Of the plan that it made; None: the plan was kept as it was."""
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    """The research steps whose findings it saw."""

    @property
    def text(self) -> str:
        """What became of the plan, in a sentence."""
        if self.version is None:
            return f"Revision {self.number}, after the research: the plan was kept as it was."
        parts = (("added", self.added), ("dropped", self.dropped), ("changed", self.changed))
        done = "; ".join(f"{what} {', '.join(steps)}" for what, steps in parts if steps)
        return f"Revision {self.number}, after the research, made plan version {self.version}: {done}."


class Review(Value):
    """One look at the report against the findings."""

    number: int
    faults: int
    sent_back: bool = False
    """Whether its writer was to mend them."""
    found: str | None = None
    """Content hash of the faults."""

    @property
    def text(self) -> str:
        """What came of it, in a sentence."""
        faults = {0: "no fault", 1: "1 fault"}.get(self.faults, f"{self.faults} faults")
        then = "; the report went back to its writer" if self.sent_back else ""
        return f"Review {self.number} of the report found {faults}{then}."


class Oversight(Value):
    """How far the oversight of a task is."""

    revisions: tuple[PlanRevision, ...] = ()
    reviews: tuple[Review, ...] = ()
    costs: dict[str, RunTotals] = {}
    """By id, what each of their agent runs has cost."""
    shares: dict[str, Limit] = {}
    """By step id, what the steps that a revision added start with."""
    under_way: str = ""
    """Id of the agent run whose cost is not booked yet."""
    sent_back: int = 0
    """How often the report went back to its writer since the task was last taken up."""
    mending: bool = False
    """The writer works on what the last review found."""
    gave_up: bool = False
    """The writer could not go on mending."""

    @property
    def totals(self) -> tuple[RunTotals, ...]:
        """What it has cost so far."""
        return tuple(self.costs.values())

    def taken_up_again(self) -> "Oversight":
        """The task goes on after its end. The plan stays as it was revised; the report is reviewed anew."""
        return self.with_(shares={}, under_way="", sent_back=0, mending=False, gave_up=False)

    def with_(self, **changes: object) -> "Oversight":
        """A copy with these fields changed."""
        return self.model_copy(update=changes)
