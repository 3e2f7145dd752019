"""Answers without tools: the sentences of the given text that say most about what is asked."""

from waystation.adapters.offline.language import concepts, sentences
from waystation.adapters.offline.quotes import relevance
from waystation.adapters.offline.replies import Reply

MOST_SENTENCES = 4
PREFACE = "No LLM wrote this; these sentences of the given text match the request best:"
NOTHING = "No LLM is configured, and the given text has no sentence that matches the request."


def answer(prompt: str) -> Reply:
    """An extractive answer. What is asked is the last question in the text, or else its last sentence."""
    told = sentences(prompt)
    asked = next((sentence for sentence in reversed(told) if sentence.endswith(("?", "？"))), told[-1] if told else "")
    looked_for = concepts(asked)
    scored = [(relevance(sentence, looked_for), sentence) for sentence in dict.fromkeys(told) if sentence != asked]
    best = sorted((item for item in scored if item[0] > 0), key=lambda item: -item[0])[:MOST_SENTENCES]
    if not best:
        return Reply(text=NOTHING)
    chosen = {sentence for _, sentence in best}
    return Reply(text="\n".join([PREFACE, *(f"- {sentence}" for _, sentence in scored if sentence in chosen)]))
