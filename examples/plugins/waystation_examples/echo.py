"""A chat model: it says what it was told last. For an endpoint of the kind `echo`:

[endpoints.mine]
kind = "echo"
"""

from waystation.plugins.api import (
    ChatModel,
    ChatModelContext,
    ModelRejected,
    ModelRequest,
    ModelResponse,
    StopReason,
    Text,
    Usage,
)

CHARACTERS_A_TOKEN = 4
WINDOW = 100_000


class EchoModel:
    """Implements the port `ChatModel`."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        if request.require_tool is not None:
            raise ModelRejected("it calls no tools")
        length = self._count(request)
        if length + request.max_output > WINDOW:
            raise ModelRejected(f"{length} tokens are more than its window of {WINDOW} has room for")
        said = request.messages[-1].text[: request.max_output * CHARACTERS_A_TOKEN]
        return ModelResponse(
            blocks=(Text(text=said or "(nothing)"),),
            stop=StopReason.END_TURN,
            usage=Usage(input=length, output=len(said) // CHARACTERS_A_TOKEN + 1),
            model=request.model,
        )

    async def count_tokens(self, request: ModelRequest) -> int | None:
        return self._count(request)

    async def aclose(self) -> None:
        """It has no connection."""

    def _count(self, request: ModelRequest) -> int:
        texts = (request.system, *(message.text for message in request.messages))
        return sum(map(len, texts)) // CHARACTERS_A_TOKEN + 1


def create_chat_model(context: ChatModelContext) -> ChatModel:
    """A model over HTTP would take address, key and time-outs from the context."""
    return EchoModel()
