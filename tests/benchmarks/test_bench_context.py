"""The proofs of the context engine: their cache follows the provider's rules, and their checker sees what is lost."""

from collections.abc import Sequence

import pytest

from benchmarks.context.conversations import OPEN_WORK, PINNED_REMARK, REMARKS, Conversation
from benchmarks.context.kept import RetentionShares, compute_visible_share, measure_retention
from benchmarks.context.prompt_cache import CACHE_TTL, PromptCache
from waystation.context.tokens import MESSAGE_TOKENS
from waystation.context.transcript import Message, MessageRole, OpaqueBlock, build_user_message
from waystation.kernel.usage import Usage

FIXED = 2_000


def sized(name: str, tokens: int, role: MessageRole = "user") -> Message:
    """A message of exactly so many tokens, its overhead included."""
    return Message(id=name, role=role, blocks=(OpaqueBlock(kind="any", body={}, tokens=tokens - MESSAGE_TOKENS),))


FIRST, REPLY, SECOND = sized("m1", 1_000), sized("m2", 100, "assistant"), sized("m3", 500)


def test_a_prefix_is_written_once_and_read_while_it_lives() -> None:
    cache = PromptCache(FIXED)
    assert cache.charge([FIRST], now=0) == Usage(cache_write=3_000)
    assert cache.charge([FIRST, REPLY, SECOND], now=CACHE_TTL - 1) == Usage(cache_read=3_000, cache_write=600)
    # Reading made it live anew: all 3,600 are there after more than a life since the first request.
    assert cache.charge([FIRST, REPLY, SECOND], now=CACHE_TTL + 100) == Usage(cache_read=3_600)
    assert cache.charge([FIRST, REPLY, SECOND], now=3 * CACHE_TTL) == Usage(cache_write=3_600)


def test_what_is_changed_is_written_again_with_everything_after_it() -> None:
    cache = PromptCache(FIXED)
    cache.charge([FIRST, REPLY, SECOND], now=0)
    changed = sized("m2", 50, "assistant")
    assert cache.charge([FIRST, changed, SECOND], now=1) == Usage(cache_read=3_000, cache_write=550)
    assert cache.charge([sized("s", 300), SECOND], now=2) == Usage(cache_read=FIXED, cache_write=800)


def test_less_than_the_least_is_neither_written_nor_read() -> None:
    cache = PromptCache(fixed=0)
    small = [sized("m1", 1_023)]
    assert cache.charge(small, now=0) == cache.charge(small, now=1) == Usage(input=1_023)
    assert cache.charge([sized("m1", 1_024)], now=2) == Usage(cache_write=1_024)


@pytest.mark.parametrize(("blocks", "read"), [(20, 3_000), (21, FIXED)])
def test_a_prefix_is_looked_for_twenty_blocks_before_a_mark(blocks: int, read: int) -> None:
    cache = PromptCache(FIXED)
    cache.charge([FIRST], now=0)
    talk = [sized(f"a{number}", 10, "assistant") for number in range(blocks - 1)]
    usage = cache.charge([FIRST, *talk, sized("m8", 10), sized("m9", 100)], now=1)
    assert usage == Usage(cache_read=read, cache_write=3_000 + 10 * blocks + 100 - read)


def conversation() -> Conversation:
    said = Conversation()
    said.user("Find the cause. Never edit the archive.")
    said.call("\n".join(OPEN_WORK), name="a.md", first_line=1)
    said.result("The cause is in records/tide/log-7.csv.")
    said.user(REMARKS[PINNED_REMARK], pin=True)
    said.user("Now go on.")
    said.call("Reading on.", name="b.md", first_line=1)
    return said


def without(place: int) -> Sequence[Message]:
    said = conversation().messages
    return [*said[:place], *said[place + 1 :]]


def test_the_checker_finds_everything_in_a_conversation_that_is_whole() -> None:
    said = conversation()
    assert measure_retention(said, said.messages, OPEN_WORK) == RetentionShares(1, 1, 1, 1)
    assert compute_visible_share(["records/tide/log-7.csv"], said.messages) == 1


@pytest.mark.parametrize(
    ("lost", "found"),
    [
        (0, RetentionShares(1, 0.5, 1, 1)),
        (1, RetentionShares(1, 1, 1 / 3, 1)),
        (3, RetentionShares(0, 0.5, 1, 1)),
        (4, RetentionShares(1, 1, 1, 0)),
        (5, RetentionShares(1, 1, 2 / 3, 1)),
    ],
)
def test_the_checker_says_what_is_lost(lost: int, found: RetentionShares) -> None:
    checked = measure_retention(conversation(), without(lost), OPEN_WORK)
    assert checked == pytest.approx(found)
    assert not checked.is_complete


def test_a_pin_that_is_only_quoted_and_an_identifier_that_is_gone_are_lost() -> None:
    said = conversation()
    quoted = build_user_message("s-1", f"The user said: {REMARKS[PINNED_REMARK]}")
    shown = [quoted if message.id in said.pinned else message for message in said.messages]
    assert measure_retention(said, shown, OPEN_WORK) == RetentionShares(0, 1, 1, 1)
    assert compute_visible_share(["records/tide/log-7.csv"], without(2)) == 0
