"""The offline model: decides by the tools on offer which work a request asks for, and has it done."""

from waystation.adapters.offline.analysis import analysis
from waystation.adapters.offline.answering import answer
from waystation.adapters.offline.condensing import condensed
from waystation.adapters.offline.overseeing import review, revision
from waystation.adapters.offline.planning import plan
from waystation.adapters.offline.replies import Reply, fitted
from waystation.adapters.offline.research import research
from waystation.adapters.offline.view import view_of
from waystation.adapters.offline.wire import MessagesRequest, RequestRefused, TextBlock
from waystation.adapters.offline.writing import writing

_WORK = {
    "submit_plan": plan,
    "revise_plan": revision,
    "submit_findings": research,
    "submit_analysis": analysis,
    "submit_report": writing,
    "review_report": review,
}
"""What the tool that ends the work says about its kind."""
_CONDENSING, _SNAPSHOT = "You condense", "<state_snapshot>"


def reply_to(request: MessagesRequest) -> Reply:
    """The reply; it depends on nothing but the request, and fits into its `max_tokens`.

    Raises:
        RequestRefused: the request forces a tool that this model has no work for.
    """
    return fitted(_reply(request), request.max_tokens)


def _reply(request: MessagesRequest) -> Reply:
    forced = request.forced_tool
    if forced is not None and forced not in _WORK:
        raise RequestRefused(f"tool_choice.name: the offline model cannot be made to call {forced!r}")
    offered = [forced] if forced else [tool.name for tool in request.tools]
    for name, work in _WORK.items():
        if name in offered:
            return work(view_of(request))
    prompt = "\n".join(block.text for block in request.messages[-1].content if isinstance(block, TextBlock))
    told = "\n".join(block.text for block in request.system)
    if _CONDENSING in told:
        return condensed(prompt, request.max_tokens, snapshot=_SNAPSHOT in told)
    return answer(prompt)
