"""How people demand and forbid, in the languages that we know: English, German, French, Spanish, Chinese, Japanese."""

from waystation.patterns import proven

_STARTS = r"[\s(\[\"'“‘«¡*_,;:—-]"
"""Before a word; a set of characters at the beginning of a pattern is searched for quickly."""
_WORDS = (
    # English
    r"never|always|must(?:n['’]?t)?|shall|do not|don['’]?t|should(?:n['’]?t)?|may not|can(?:not|['’]t)|not (?:to|yet)"
    r"|just yet|only|avoid|unless|until|at (?:most|least)|no (?:more|later|less|fewer) than|except|require[ds]?"
    r"|deadline|make sure|ensure|be sure|wait for|hands off|forbidden|prohibited|acceptance criteri(?:a|on)"
    # German
    r"|nie(?:mals)?|immer|muss(?:t)?|müss(?:en|t)|soll(?:en|st|t|te|ten)?|d[aü]rf(?:en|st|t)?|kein(?:e[mnrs]?)?|nur"
    r"|(?:noch|bitte|bloß|auch) nicht|nicht(?=[.,;!]|$)|erst wenn|bis (?:ich|wir|zum)|außer|mindestens|höchstens"
    r"|spätestens|vermeide[nt]?|verboten|unbedingt"
    # French
    r"|jamais|toujours|do(?:is|it|ivent)|devez|il faut|ne \w{1,20} (?:pas|rien|plus)|n['’]\w{1,20} (?:pas|rien)"
    r"|ne pas|pas encore|uniquement|seulement|sauf|jusqu['’]\w{1,10}|au (?:plus|moins)|interdit\w{0,2}|avant que"
    r"|obligatoire\w?"
    # Spanish
    r"|nunca|jamás|siempre|deb(?:e[ns]?|es)|hay que|tien(?:e|es) que|no (?:l[aeo]s? )?\w{1,20}(?:es|éis)"
    r"|no (?:hag|pong|escrib|abr|salg|dig|ejecut)\w{1,4}|(?:todavía|aún) no|s[oó]lo|únicamente|solamente|salvo|excepto"
    r"|hasta que|como (?:máximo|mínimo)|al menos|a más tardar|obligatori[ao]|prohibid[ao]"
)
_DEMAND = proven(rf"{_STARTS}(?:(?<=^.)no [a-z]|(?:{_WORDS})(?!\w))")
_WIDE_DEMAND = proven(
    # Chinese
    r"不要|不得|不能|不许|不許|不准|不可|禁止|切勿|请勿|請勿|务必|務必|必须|必須|一定要|只能|只要|仅|僅|除非|直到|至少|至多"
    r"|最多|总是|總是|永远|永遠|绝不|絕不|先不|暂不|暫不|应该|應該"
    r"|(?<![特分区區类類级級性识識辨個])[別别](?![的人名のに途々紙表])"
    # Japanese
    r"|厳禁|必ず|絶対|決して|だけ|のみ|以外|まで(?:は|に)|ないで|なければ|ならない|なきゃ|べき|てはいけ|てはなら|するな|せよ"
    r"|いけません|少なくとも|以内"
)


def is_demand(sentence: str) -> bool:
    """Whether the sentence demands or forbids something."""
    if _DEMAND.search(f" {sentence.lower()}"):
        return True
    return not sentence.isascii() and _WIDE_DEMAND.search(sentence) is not None
