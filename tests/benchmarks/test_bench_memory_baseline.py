"""The baseline of the memory's proofs is as plain as it says, and keeps the budget that it is compared at."""

from benchmarks.memory.kinds import generate_kinds
from benchmarks.memory.plain import Bm25, PlainMemory, split_words
from waystation.context.tokens import estimate_text
from waystation.memory.embedders.local import NoEmbedder

TALK = [f"turn {number} about the weather of day {number}" for number in range(30)]


def test_letters_make_words_and_each_chinese_character_is_one() -> None:
    assert split_words("The Roof, 4,200: 屋顶?") == ["the", "roof", "4", "200", "屋", "顶"]


def test_rare_words_weigh_more_than_frequent_ones() -> None:
    scores = Bm25(["the roof", "the gate", "the lift"]).score("the gate")
    assert scores.index(max(scores)) == 1
    assert scores[0] > 0


async def test_a_window_of_three_turns_comes_back_within_its_tokens_in_order() -> None:
    memory = await PlainMemory.from_texts([*TALK, "the seal is cracked", *TALK], NoEmbedder())
    room = sum(estimate_text(text) for text in [TALK[-1], "the seal is cracked", TALK[0]])
    for tokens in (0, 5, room, 100):
        shown = await memory.search("which seal is cracked", tokens)
        assert sum(estimate_text(turn) for turn in shown) <= tokens
    shown = await memory.search("which seal is cracked", 3 * room)
    place = shown.index("the seal is cracked")
    assert shown[place - 1 : place + 2] == [TALK[-1], "the seal is cracked", TALK[0]]


async def test_what_matches_nothing_comes_behind_what_matches() -> None:
    memory = await PlainMemory.from_texts([*TALK, "the seal is cracked"], NoEmbedder())
    assert "the seal is cracked" in await memory.search("cracked", 30)


async def test_a_line_of_a_long_text_is_a_turn() -> None:
    memory = await PlainMemory.from_texts(["one\ntwo\n\nthree", "four"], NoEmbedder())
    assert memory.turns == ["one", "two", "three", "four"]


def test_every_generated_question_has_its_words_in_the_message_it_names() -> None:
    for kind in generate_kinds():
        texts = {message.id: message.model_dump_json() for message in kind.messages}
        assert len(kind.sought) >= 20
        for sought in kind.sought:
            for message, evidence in sought.evidence:
                assert evidence in texts[message]
