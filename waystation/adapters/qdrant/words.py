"""Makes text ready for BM25, whose tokeniser cuts at spaces."""

from waystation.patterns import proven

_UNSPACED = proven(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]+"
)  # kana and Han characters


def with_bigrams(text: str) -> str:
    """The text with every run of Chinese or Japanese characters as overlapping pairs, so that parts of it are found."""
    return _UNSPACED.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", text)


def _pairs(run: str) -> list[str]:
    return [run[index : index + 2] for index in range(max(1, len(run) - 1))]
