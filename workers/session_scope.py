"""Which session the code at work belongs to, as the input of its activity says."""

from contextvars import ContextVar

from pydantic import BaseModel
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from waystation.domain.leg import RunRef
from waystation.domain.task import TaskRef

DEPTH = 3
"""Of the reference in an input: an order, its request, its run."""

_PRESENT: ContextVar[str] = ContextVar("session", default="")


def present_session() -> str:
    """The session's hash; empty where the work belongs to none."""
    return _PRESENT.get()


class SessionScope(Interceptor):
    """Makes the session of every activity known to what it calls."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """One for each activity."""
        return _Scoped(next)


class _Scoped(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> object:
        sessions = [session_of(one) for one in list[object](input.args)]
        token = _PRESENT.set(next(filter(None, sessions), ""))
        try:
            return await super().execute_activity(input)
        finally:
            _PRESENT.reset(token)


def session_of(given: object, depth: int = DEPTH) -> str:
    """That of the first reference to a run or a task in an input; empty where there is none."""
    match given:
        case RunRef() | TaskRef():
            return given.session
        case BaseModel() if depth:
            parts = (session_of(getattr(given, name), depth - 1) for name in type(given).model_fields)
            return next(filter(None, parts), "")
        case _:
            return ""
