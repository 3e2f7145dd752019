"""Whether one more call fits under a limit, whatever the model does with it."""


def reply_room(left: int, input_bound: int, max_output: int, floor: int) -> int | None:
    """The most tokens that a reply may have so that input and reply together stay within `left`.

    `input_bound` is an upper bound of the request's input tokens. None: not even `floor` tokens of reply fit.
    """
    room = min(max_output, left - input_bound)
    return room if room >= floor else None


def shortfall(left: int, input_bound: int, floor: int) -> int:
    """How many tokens over `left` the smallest useful call needs."""
    return max(0, input_bound + floor - left)
