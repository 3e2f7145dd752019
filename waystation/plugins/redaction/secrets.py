"""Detects keys, tokens and passwords by their issuers' formats, in HTTP headers, cookies and URLs, on command lines and
in the small files that commands read, and as fallbacks of environment variables: `getenv("DB_PASSWORD", "value")`, `||
"value"`.
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from math import log2

from waystation.kernel.patterns import compile_bounded
from waystation.plugins.redaction.assigned_secrets import (
    ACCESS,
    KEY,
    PASSWORD,
    find_assigned_secrets,
    is_code_expression,
    is_dummy_value,
    is_unlike_a_word,
    to_lower_same_length,
)
from waystation.plugins.redaction.columns import find_column_values
from waystation.plugins.redaction.credentials import (
    find_access_codes,
    find_field_secrets,
    find_private_keys,
    find_recovery_secrets,
    find_service_keys,
)
from waystation.plugins.redaction.formats import FormatRecognizer, PrefilteredPattern, RecognizerMatch
from waystation.plugins.redaction.headings import find_secrets_under_headings
from waystation.plugins.redaction.structured_secrets import (
    find_login_passwords,
    find_sql_insert_passwords,
    find_structural_secrets,
)

_END = r"\s\"'`\\,;<>"
_AUTHORIZATION = PrefilteredPattern(
    ("authorization",),
    compile_bounded(
        r"(?:proxy-)?authorization\\?[\"']?\s{0,3}[:=,]\s{0,3}[fb]?\\?[\"'`]?"
        r"(?!digest\b|aws4)(?:[a-z][\w-]{1,30}[ \t]{1,3})?(?:(?:auth|token|key|credential|apikey)=\"?)?"
        rf"(?P<secret>[^{_END}]{{6,4000}})",
        re.IGNORECASE,
    ),
)
_SCHEME = PrefilteredPattern(
    ("bearer", "basic"),
    compile_bounded(
        r"\b(?:bearer|basic)\s{1,3}(?P<secret>(?:(?=[\w.~+/-]{0,80}\d)[\w.~+/-]{16,}|[\w+/]{10,}(?==))={0,2})", re.I
    ),
)
_SIGNED = PrefilteredPattern(
    ("response=", "signature="),
    compile_bounded(r"\b(?:response=\"(?P<response>[0-9a-f]{32,128})\"|Signature=(?P<secret>[0-9a-fA-F]{32,128}))"),
)
_HEADER_OPTION = PrefilteredPattern(
    ("-h", "--header"),
    compile_bounded(
        r"\s(?:-H|--header)[ =]?(?P<quote>[\"'])[\w-]{0,40}(?:key|token|secret|auth|password)[\w-]{0,20}:\s{0,3}"
        r"(?P<secret>(?:(?!(?P=quote))\S){4,4000})(?P=quote)",
        re.IGNORECASE,
    ),
)
_COOKIES = PrefilteredPattern(
    ("cookie", "-b"),
    compile_bounded(
        r"(?:cookie2?\\?[\"']?\s{0,2}[:=,]\s{0,2}\[?\\?[\"']?|\s(?:-b|--cookie)[ =]?[\"'])"
        r"(?=[\w.$%-]{1,60}=)(?P<all>[^\n]{1,8000})",
        re.IGNORECASE,
    ),
)
_COOKIE = compile_bounded(rf"(?P<name>[\w.$%-]{{1,60}})=(?P<secret>[^{_END}]{{4,4000}})")
_OF_A_SESSION = compile_bounded(r"sess|sid|token|auth|jwt|csrf|xsrf|remember|ticket|secret|pass|login", re.IGNORECASE)
_KNOWN_COOKIE = PrefilteredPattern(
    ("sess", "sid=", "csrf", "token=", ".aspnetcore.", "wordpress"),
    compile_bounded(
        r"(?:\b(?:JSESSIONID|PHPSESSID|ASPSESSIONID\w{0,12}|ASP\.NET_SessionId|CFTOKEN|connect\.sid|laravel_session|_gh_sess"
        r"|csrftoken|XSRF-TOKEN|sessionid|sid|ssid|wordpress_logged_in_\w{1,40})|\.AspNetCore\.\w{1,40})="
        rf"(?=[^{_END}&]{{0,60}}\d)(?P<secret>[^{_END}&?)]{{8,4000}})",
        re.IGNORECASE,
    ),
)
_IN_QUERY = PrefilteredPattern(
    ("?", "&", ";"),
    compile_bounded(
        r"[?&;](?:amp;)?(?:(?P<sure>[\w.-]{0,30}?(?:api_?-?key|access_?token|password|passwd|pwd|client_?secret|sig|signature))"
        r"|[\w.-]{0,30}?(?:key|token|secret|pass|auth|sid|session|otp|code_verifier|jwt|ticket))="
        r"(?P<secret>[^&#\s\"'`\\<>);,]{4,4000})",
        re.IGNORECASE,
    ),
)
_GIVEN_ONCE = PrefilteredPattern(
    ("code=", "appid=", "/reset", "reset/", "/invit", "/activat", "/magic", "/verify", "/confirm"),
    compile_bounded(
        r"(?:[?&](?:code|appid)=|/(?:(?:password[-_])?reset(?:[-_]password)?|invit(?:e|ation)s?|activat(?:e|ion)|magic(?:[-_]?link)?"
        r"|verify|confirm)/)(?P<secret>(?=[A-Za-z_-]{0,40}\d)(?=[\d_-]{0,40}[A-Za-z])[\w-]{20,400}+)(?![./])"
    ),
)
"""Parts of a link that grants access to anyone who follows it."""
_IN_URL = PrefilteredPattern(
    ("://",),
    compile_bounded(
        r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,30}://[^\s:/@<>]{0,200}:"
        r"(?P<secret>[^\s/@]{1,200}(?:@[^\s/@,;?&=#()\"'`<>]{1,100}){0,3})@"
    ),
)
_KEY_IN_URL = PrefilteredPattern(
    ("://",), compile_bounded(r"://(?P<secret>(?=[\w-]{0,100}\d)[\w-]{20,200})@(?=[\w.-]{1,250}\.\w)")
)
_WIFI = PrefilteredPattern(
    ("wifi:",),
    compile_bounded(
        r"\bWIFI:(?>[A-OQ-Z]:(?:\\.|[^;\\\s]){0,200}+;){0,8}+P:(?P<secret>(?:\\.|[^;\\\n]){1,200});", re.IGNORECASE
    ),
)
_ORACLE = PrefilteredPattern(
    ("sqlplus", "jdbc:oracle"),
    compile_bounded(r"\b(?:sqlplus\s(?:-\w\s){0,3}|jdbc:oracle:\w{1,10}:)[\w$#]{1,60}/(?P<secret>[^\s/@\"']{1,100})@"),
)
_MIN_KEY_CHARACTERS, _LONG_COOKIE = 6, 16
_DIGIT = compile_bounded(r"\d")
_INNER_CAPITAL, _CAPITALS, _SMALL = (
    compile_bounded(r"[a-z][A-Z]"),
    compile_bounded(r"[A-Z]{2}"),
    compile_bounded(r"[a-z]"),
)


def find_http_secrets(text: str) -> Iterator[RecognizerMatch]:
    """Yield every secret in a header, cookie or URL; the same characters may be matched more than once."""
    for start, end in _spans(text, to_lower_same_length(text)):
        if not is_dummy_value(text[start:end]):
            yield RecognizerMatch("SECRET", start, end, 0.9)


def _spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    for pattern in (_SCHEME, _HEADER_OPTION, _KNOWN_COOKIE, _GIVEN_ONCE, _IN_URL, _KEY_IN_URL, _WIFI, _ORACLE):
        for match in pattern.matches(text, lowered):
            yield match.span("secret")
    for match in _SIGNED.matches(text, lowered):
        yield match.span(match.lastgroup or 0)
    yield from _authorizations(text, lowered)
    yield from _in_queries(text, lowered)
    yield from _cookies(text, lowered)


def _authorizations(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    for match in _AUTHORIZATION.matches(text, lowered):
        if _DIGIT.search(match["secret"]) or _is_mixed(match["secret"]):
            yield match.span("secret")


def _is_mixed(value: str) -> bool:
    """Return whether there are capitals where no word has them, or Base64 padding."""
    capitals = _CAPITALS.search(value)
    small = capitals and _SMALL.search(value, capitals.end())
    return "=" in value or small is not None or len(_INNER_CAPITAL.findall(value)) > 1


def _in_queries(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    for match in _IN_QUERY.matches(text, lowered):
        if match["sure"] or (len(match["secret"]) >= _MIN_KEY_CHARACTERS and _DIGIT.search(match["secret"])):
            yield match.span("secret")


def _cookies(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    for cookies in _COOKIES.matches(text, lowered):
        for match in _COOKIE.finditer(text, *cookies.span("all")):
            is_long = len(match["secret"]) >= _LONG_COOKIE and _DIGIT.search(match["secret"])
            if is_long or _OF_A_SESSION.search(match["name"]):
                yield match.span("secret")


_NAME = compile_bounded(
    rf"(?:(?P<password>{PASSWORD}|(?<=[_.-])(?:pass|pw)|(?<=[\"'.])pass)|{ACCESS}|{KEY})"
    r"(?:_?\d{1,3})?(?![\w.-]{1,60}[\"'])(?!\w)"
)
_REACH = 120
"""Characters before a name that are checked for access to the environment."""
_LOOKED_UP = compile_bounded(
    r"(?:env\w{0,20}|(?:env\w{0,20}|config\w{0,10}|settings?|prop(?:ertie)?s)\.(?:get\w{0,20}|fetch|value)|config|settings?"
    r"|default|property)\(\s?[\"'][\w.-]{0,60}\Z"
)
_OF_ENVIRONMENT = compile_bounded(r"(?:\benv(?:iron)?\b[\w.]{0,20}\(?\[?[\"']?|getenv\([\"'])[\w.-]{0,60}\Z")
_EXPANDED = compile_bounded(r"\$\{[\w.-]{0,60}\Z")
_QUOTED = r"(?P<quote>[\"'`])(?P<secret>(?:(?!(?P=quote))[^\n\\]){3,400}+)(?P=quote)"
_SECOND_ARGUMENT = compile_bounded(
    rf"[\"']\s{{0,20}},\s{{0,80}}(?:(?:default|fallback|default_value|defaultvalue)\s?[=:]\s?)?{_QUOTED}"
)
_OR_ELSE = compile_bounded(rf"[\"']?[\])]{{0,2}}\s{{0,40}}(?:\|\||\?\?|\?:|or\b)\s{{0,40}}{_QUOTED}")
_IN_BRACES = compile_bounded(r"(?::?[-=]|:(?![?+]|\d{1,4}(?::|\})))(?P<secret>[^\s{}$\"'`<>]{3,400}+)\}")
_FORMS = (
    (_LOOKED_UP, _SECOND_ARGUMENT),
    (_OF_ENVIRONMENT, _OR_ELSE),
    (_EXPANDED, _IN_BRACES),
)
"""What precedes the name, and what follows it."""
_CONTEXT = compile_bounded(r"env|config|setting|default|propert|props\.|\$\{")
"""In lower case: every look-up begins with one of these."""
_ONE_DIGIT, _LETTER, _SPACE = compile_bounded(r"\d"), compile_bounded(r"[^\W\d_]"), compile_bounded(r"\s")
_PLACE = compile_bounded(r"\A(?:https?://|[~.]{0,2}/)|\A[\w-]+\.(?:json|pem|key|ya?ml|txt|crt)\Z", re.IGNORECASE)
_MIN_CHARACTERS = {"password": 4, "key": 8}


def find_environment_fallbacks(text: str) -> Iterator[RecognizerMatch]:
    """Yield every value that is a fallback for a secret of the environment."""
    lowered = to_lower_same_length(text)
    names = (name for stretch in _stretches(lowered) for name in _NAME.finditer(lowered, *stretch))
    for name in names:
        before = lowered[max(0, name.start() - _REACH) : name.start()]
        for first, behind in _FORMS:
            value = behind.match(text, name.end())
            if value is not None and first.search(before) is not None:
                start, end = value.span("secret")
                if _counts(text, start, end, "password" if name["password"] else "key"):
                    yield RecognizerMatch("SECRET", start, end, 0.9)


def _stretches(lowered: str) -> Iterator[tuple[int, int]]:
    """Yield spans in which names may be looked up: searching all of the text for labels once more would take long."""
    start = end = 0
    for context in _CONTEXT.finditer(lowered):
        if context.end() > end:
            if end:
                yield start, end
            start = context.end()
        end = context.end() + _REACH
    if end:
        yield start, end


def _counts(text: str, start: int, end: int, kind: str) -> bool:
    value = text[start:end]
    if len(value) < _MIN_CHARACTERS[kind] or _SPACE.search(value) or _PLACE.match(value):
        return False
    if is_dummy_value(value) or is_code_expression(text, start, end):
        return False
    mixed = _ONE_DIGIT.search(value) is not None and _LETTER.search(value) is not None
    return kind == "password" or mixed or is_unlike_a_word(value)


_ISSUED = compile_bounded(
    r"""(?<![A-Za-z0-9])(?:
      sk-ant-[\w-]{8,}
    | sk-(?=[A-Za-z_-]{0,40}\d)[A-Za-z0-9_-]{20,}
    | [srp]k_(?:live|test)_\w{10,} | whsec_[\w+/=]{16,}
    | A(?:KIA|SIA|BIA|CCA)[0-9A-Z]{16}(?![A-Za-z0-9])
    | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_\w{20,} | gl(?:pat|dt|rt|cbt|ptt|ft|imt|soat|agent|oas|ffct)-[\w.-]{16,}
    | xox[abeoprs]-[\w-]{10,} | xapp-[\w-]{10,}
    | AIza[\w-]{30,} | ya29\.[\w-]{20,} | GOCSPX-[\w-]{20,}
    | [\w~.-]{3}\dQ~[\w~.-]{31,34}                                                 # a client secret of Azure
    | npm_[A-Za-z0-9]{30,} | pypi-[\w-]{50,} | rubygems_[0-9a-f]{40,} | dckr_(?:pat|oat)_[\w-]{20,}
    | (?:hf|api_org)_[A-Za-z0-9]{30,} | gsk_[A-Za-z0-9]{40,} | xai-[A-Za-z0-9]{40,} | pplx-[A-Za-z0-9]{32,}
    | r8_[A-Za-z0-9]{36,} | lsv2_(?:pt|sk)_[\w]{32,} | pa-[A-Za-z0-9_-]{40,}
    | SG\.[\w-]{16,100}+\.[\w-]{16,} | key-[0-9a-f]{32}(?![A-Za-z0-9]) | SK[0-9a-f]{32}(?![A-Za-z0-9]) 
    | [0-9a-f]{32}-us\d{1,2}(?![A-Za-z0-9])
    | do[opr]_v1_[0-9a-f]{40,} | shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32} | sq0(?:atp|csp|idp)-[\w-]{20,}
    | dapi[0-9a-f]{32}(?:-\d)?(?![A-Za-z0-9]) | dp\.(?:pt|st|ct|sa)\.[\w.-]{30,} | hv[sbr]\.[\w-]{20,}
    | [A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,} | gl(?:sa|c)_[\w=]{30,} | NRAK-[A-Z0-9]{27}(?![A-Za-z0-9])
    | sntry[su]_[\w+/=]{30,}
    | lin_(?:api|oauth)_[A-Za-z0-9]{32,} | ntn_[A-Za-z0-9]{40,} | fig[do]_[\w-]{30,} | PMAK-[0-9a-f-]{30,}
    | ATBB[A-Za-z0-9]{24,} | apify_api_\w{30,} | 1000\.[0-9a-f]{32}\.[0-9a-f]{32} | bb_(?:pr|ma)_[0-9a-f]{30}
    | (?:sdk|mob|api)-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?![A-Za-z0-9]) | tkn\.v1_[\w=-]{60,} | tfp_\w{40,}
    | pat[A-Za-z0-9]{14}\.[0-9a-f]{64} | AT[AC]TT3[\w=-]{30,} | sbp_[0-9a-f]{40} | pscale_(?:tkn|pw|oauth)_[\w.-]{30,}
    | CCIPAT_\w{20,} | HRKU-[\w-]{30,} | ops_eyJ[\w-]{50,}
    | A3-[A-Z0-9]{6}-[A-Z0-9-]{20,40}(?![A-Za-z0-9]) | AKCp[A-Za-z0-9]{60,} | cmVmd[A-Za-z0-9]{55,} | fo1_[\w-]{40,}
    | fm(?:1[ar]|2)_[\w+/]{60,}
    | sha256~[\w-]{40,} | sm_[aps]at_[A-Za-z0-9]{14,} | CLOJARS_[0-9a-z]{40,} | v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}
    | pul-[0-9a-f]{40}(?![A-Za-z0-9]) | rdme_[0-9a-z]{60,} | duffel_(?:test|live)_[\w=-]{40,} | EZ[AT]K[A-Za-z0-9]{50,}
    | FLW(?:SECK|PUBK)_TEST-[\w-]{12,}
    | shippo_(?:live|test)_[0-9a-fA-F]{40} | tk-us-[\w-]{40,} | xkeysib-[0-9a-f]{64}-\w{16}
    | ico-[A-Za-z0-9]{32}(?![A-Za-z0-9]) | LTAI[A-Za-z0-9]{18,}
    | s-s4t2(?:ud|af)-[0-9a-f]{64} | dt0c01\.[A-Z0-9a-z]{24}\.[A-Z0-9a-z]{60,}
    | ABSK[A-Za-z0-9+/]{100,}={0,2} | bedrock-api-key-[A-Za-z0-9+/=]{20,}
    | sgp_(?:\w{5,16}_)?[0-9a-fA-F]{40} | sq[aup]_[0-9A-Za-z]{40}(?![A-Za-z0-9])
    | API-[A-Z0-9]{26}(?![A-Za-z0-9]) | GR1348941[\w-]{20,}
    | pnu_[A-Za-z0-9]{30,}
    | xoxe\.xox[bp]-[\w-]{20,} | [srp]k_prod_\w{10,} | EAA[AMC][A-Za-z0-9]{60,} | p8e-[a-z0-9]{32} | dnkey-[\w=-]{50,}
    | fio-u-[\w=-]{60,} | pk\.[a-z0-9]{60}\.[a-z0-9]{22} | sl\.[\w=-]{100,} | YC[A-Za-z0-9_-]{38}(?![A-Za-z0-9])
    | AQVN[\w-]{35,} | t1\.[\w-]{1,100}\.[\w-]{80,}
    | (?:test|live)_(?:pub_)?[0-9a-f]{31,40}(?![A-Za-z0-9]) | glpat-[\w.-]{20,}
    | [sp]at\.[\w-]{22}\.[0-9A-Za-z]{24}\.[0-9A-Za-z]{20}
    | ZXlK[A-Za-z0-9+/]{40,}={0,2} | ey[A-Za-z0-9]{15,4000}+\.ey[\w/-]{15,4000}+\.[\w/-]{0,4000}+
    | AGE-SECRET-KEY-1[0-9A-Z]{50,}
    | eyJ[\w-]{8,4000}+\.[\w-]{8,4000}+\.[\w-]{8,}
    | \$(?:1|2[abxy]|5|6|7|y|apr1|argon2(?:id?|d))\$[\w./$+=,-]{20,200} | pbkdf2_\w{3,10}\$\d{1,9}\$[\w./$+=]{20,200}
    )
    | (?<![\w|.])\d{13,20}\|(?=[\w-]{0,26}\d)[\w-]{27}(?![\w-])                         # an app of Facebook
    | (?:(?<=/bot)|(?<![A-Za-z0-9]))\d{8,10}:AA[\w-]{32,36}(?![\w-])                  # a bot of Telegram
    """,
    re.VERBOSE,
)
_GLUED = compile_bounded(
    r"""(?<=[A-Za-z0-9])(?:
      A(?:KIA|SIA)(?:(?<=[a-z]A[KS]IA)|(?=[A-Z]{0,15}[0-9]))[A-Z0-9]{16}
    | gh[pousr]_[A-Za-z0-9]{36} | github_pat_[A-Za-z0-9]{22}_\w{30,}
    | glpat-[\w-]{20} | sk-ant-[a-z0-9]{2,12}-[\w-]{20,}
    | sk-proj-[\w-]{20,} | [rs]k_live_(?=[A-Za-z]{0,20}\d)[A-Za-z0-9]{24,} | xox[abeoprs]-\d{8,}-[\w-]{10,}
    | AIza(?=[A-Za-z_-]{0,34}\d)[\w-]{35} | GOCSPX-[\w-]{28} | npm_(?=[A-Za-z]{0,35}\d)[A-Za-z0-9]{36}
    | pypi-AgE[\w-]{50,}
    | dckr_pat_[\w-]{27} | hf_[A-Za-z]{34}(?![A-Za-z]) | SG\.[\w-]{22}\.[\w-]{43}
    | eyJ[\w-]{17,4000}+\.eyJ[\w-]{17,4000}+\.[\w-]{8,}
    )
    | (?<![A-Za-z0-9])A(?:KIA|SIA)(?:[A-Z0-9]{16}(?=[a-z]|[A-Z][a-z])|(?=[A-Z]{0,15}[0-9])[A-Z0-9]{17,40}+(?![a-z]))
    """,
    re.VERBOSE,
)
"""Keys with a format that no word has, without a boundary before or after them: `BackupAKIA…`, `AKIA…Backup`."""
_MADE_UP = compile_bounded(r"[xX*]{8}|(?<=[a-z])_TOKEN|-my-")
"""How manuals write a fake key."""
_HOOK_ADDRESS = compile_bounded(
    r"\bhttps?://(?:hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/"
    r"|(?:\w{1,10}\.)?discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/\d{1,30}/"
    r"|(?:outlook\.office(?:365)?\.com|[\w-]{1,80}\.webhook\.office\.com)/webhook(?:b2)?/|hooks\.zapier\.com/hooks/catch/"
    r"|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook/|hook\.[\w.]{1,30}\.?make\.com/"
    r"|maker\.ifttt\.com/trigger/[\w-]{1,80}/(?:json/)?with/key/"
    r"|[\w.-]{1,120}(?::\d{2,5})?/hooks/(?=[a-z0-9]{26}(?![\w/-])|[A-Za-z0-9]{17}/[A-Za-z0-9]{20}))"
    r"(?P<secret>[\w/@.-]{16,400})(?<![.@/-])"
)


def find_known_token_formats(text: str) -> Iterator[RecognizerMatch]:
    """Yield keys, tokens and password hashes, and the secret part of webhook URLs."""
    for pattern in (_ISSUED, _GLUED):
        for match in pattern.finditer(text):
            if not _MADE_UP.search(match[0]):
                yield RecognizerMatch("SECRET", match.start(), match.end(), 1.0)
    for match in _HOOK_ADDRESS.finditer(text):
        yield RecognizerMatch("SECRET", *match.span("secret"), 0.9)


_WORD = r"(?P<quote>[\"'])?(?P<secret>(?(quote)(?!(?P=quote))[^\n]|[^\s;|&)`\"']){1,200})(?(quote)(?P=quote))"
_TO = r"[^\n|;&]{0,200}?\s"
_TO_LATER_LINES = r"(?:[^\n|;]|(?<=\\)\n){0,300}?\s"
"""Commands with URLs and bodies continue over lines that end in a backslash."""
_COMMANDS = (
    PrefilteredPattern(
        ("pass", "token", "key", "secret"),
        compile_bounded(
            r"(?<!\S)--?(?:[\w-]{0,30}-)?(?:password|passwd|passphrase|pass|token|api-?key|secret|secret-key|access-key|client-secret)"
            rf"(?:[= ]|[ \t]{{1,20}}+\\\r?\n[ \t]{{0,80}}+)(?!\\\r?\n){_WORD}"
        ),
    ),
    PrefilteredPattern(
        ("curl",),
        compile_bounded(
            rf"\bcurl\b{_TO_LATER_LINES}(?:-u|--user|--proxy-user|-U)[ =]{{0,3}}(?:"
            r"[\"'](?P<token>[^\s:\"'<$]{8,100}):[\"']"
            r"|[\"']?[^\s:\"'<$]{0,100}[\"']?:[\"']?(?P<secret>[^\s\"'>]{1,100}))"
        ),
    ),
    PrefilteredPattern(
        ("mysql", "mariadb", "mycli"),
        compile_bounded(rf"\b(?:mysql\w{{0,40}}|mariadb\w{{0,40}}|mysqldump|mycli)\b{_TO}-p(?=\S){_WORD}"),
    ),
    PrefilteredPattern(
        ("sshpass", "redis-cli", "zip", "sqlcmd", "7z"),
        compile_bounded(
            rf"\b(?:sshpass\b{_TO}?-p|redis-cli\b{_TO}-a|(?:un)?zip\b{_TO}-P|sqlcmd\b{_TO}-P"
            rf"|7z\b{_TO}-p(?=\S)) ?{_WORD}"
        ),
    ),
    PrefilteredPattern(
        ("login",),
        compile_bounded(
            rf"\b(?:(?:docker|podman|helm|az|oc|skopeo|buildah)\b[^\n|;&]{{0,60}}?\slogin\b{_TO}-p) {_WORD}"
        ),
    ),
    PrefilteredPattern(
        ("mongo", "ldap"),
        compile_bounded(rf"\b(?:(?:mongo(?:sh|dump|restore)?\b{_TO}-p|ldap\w{{1,40}}\b{_TO}-w)) {_WORD}"),
    ),
    PrefilteredPattern(
        ("htpasswd", "/user:"),
        compile_bounded(
            rf"\b(?:htpasswd\s-(?=\w{{0,20}}b)\w{{1,40}}+\s\S{{1,100}}\s\S{{1,60}}"
            rf"|net\suse\s\S{{1,100}}(?:\s\\\\\S{{1,100}})?(?=[^\n]{{0,80}}/user:)) {_WORD}"
        ),
    ),
    PrefilteredPattern(
        ("smb", "rpcclient", "winexe"),
        compile_bounded(
            r"\b(?:smbclient|rpcclient|winexe|smbmap)\b[^\n]{0,120}?\s-U ?[\"']?[^\s%\"']{1,60}%"
            r"(?P<secret>[^\s\"']{1,100})"
        ),
    ),
    PrefilteredPattern(
        ("useradd", "usermod"),
        compile_bounded(rf"\b(?:useradd|usermod)\b{_TO}-p {_WORD}"),
    ),
    PrefilteredPattern(
        ("--auth", "-a "),
        compile_bounded(
            rf"\bhttps?(?=[ \t]){_TO}(?:-a|--auth)[ =][\"']?[^\s:\"'<$]{{1,100}}:(?P<secret>[^\s\"'>]{{1,100}})"
        ),
    ),
    PrefilteredPattern(
        ("sudo -", "-stdin", "passwd"),
        compile_bounded(
            r"\b(?:echo|printf)\s(?:-\w{1,3}\s)?[\"']?(?P<secret>[^\s\"'|]{3,200})[\"']?\s?\|\s?(?:sudo\s(?:-\w{1,3}\s)?-\w{0,3}S"
            r"|(?:sudo\s)?\w{0,10}passwd|[^\n|]{0,120}?--password-stdin)"
        ),
    ),
    PrefilteredPattern(
        ("requirepass", "masterauth", "bindpw", "rootpw"),
        compile_bounded(
            r"^[ \t]{0,20}(?:requirepass|masterauth|bindpw|(?:olc)?rootpw:{0,2})[ \t]{1,8}[\"']?"
            r"(?P<secret>[^\s\"'#]{3,200})",
            re.IGNORECASE | re.MULTILINE,
        ),
    ),
    PrefilteredPattern(("pass:",), compile_bounded(r"(?<!\S)-?-pass(?:in|out)? (?:pass:)(?P<secret>[^\s\"']{1,200})")),
    PrefilteredPattern(
        ("passw",),
        compile_bounded(
            r"\b(?:login|user|account)\s{1,8}(?!(?:or|and)\s)\S{1,100}\s{1,8}passw(?:or)?d\s{1,8}(?P<secret>\S{1,200})(?=[^\S\n]{0,80}+(?:\Z|[\n\"'`]|machine\b|account\b))"
        ),
    ),
    PrefilteredPattern(
        (":",),
        compile_bounded(
            r"^[\w.*-]{1,100}:(?:\d{2,5}|\*):[^:\s]{1,60}:[^:\s]{1,60}:(?P<secret>[^:\s]{1,100})$", re.MULTILINE
        ),
    ),
)
_NO_VALUE = compile_bounded(r"\A(?:-.*|[|&;]|\$\(.*|\\+)\Z")


def find_command_line_secrets(text: str) -> Iterator[RecognizerMatch]:
    """Yield every password that is an argument; the same characters may be matched more than once."""
    lowered = to_lower_same_length(text)
    for pattern in _COMMANDS:
        for match in pattern.matches(text, lowered):
            # A token may be in the place of a user, without a password.
            group = "secret" if match["secret"] is not None else "token"
            if not (is_dummy_value(match[group].rstrip(",.")) or _NO_VALUE.match(match[group])):
                yield RecognizerMatch("SECRET", *match.span(group), 0.9)


_LIKELY = compile_bounded(
    r"(?:\b|_)(?:secrets?|tokens?|keys?|credentials?|passwords?|passphrase|pat)\b[^\n]{0,40}?"
    r"(?<![\w/.@-])(?P<secret>(?=[\w+/=-]{0,60}\d)[A-Za-z0-9+/=_-]{20,200})(?![\w@.-])",
    re.IGNORECASE,
)
_MIN_ENTROPY = 3.7
"""Minimum bits per character. Identifiers of code and paths have less, or lack capitals or digits in between."""


def find_whole_text_matches(text: str) -> Iterator[RecognizerMatch]:
    """Yield secrets, and numbers in tables, that a chunk may separate from what names them."""
    return chain(
        find_private_keys(text),
        find_structural_secrets(text),
        find_secrets_under_headings(text),
        find_sql_insert_passwords(text),
        find_column_values(text),
    )


class SecretRecognizer(FormatRecognizer):
    """Finds SECRET, except for what only the whole text shows.

    Of an assignment or URL only the value is matched; dummies (`your-key`, `***`, `$TOKEN`) stay.
    """

    TYPES = ("SECRET",)

    def find_matches(self, text: str) -> Iterator[RecognizerMatch]:
        """Yield every secret; the same characters may be matched more than once."""
        lowered = to_lower_same_length(text)
        yield from chain(
            find_known_token_formats(text),
            find_assigned_secrets(text),
            find_http_secrets(text),
            find_command_line_secrets(text),
            find_access_codes(text),
            find_login_passwords(text),
            find_environment_fallbacks(text),
        )
        yield from chain(
            find_service_keys(text, lowered), find_recovery_secrets(text, lowered), find_field_secrets(text, lowered)
        )
        for match in _LIKELY.finditer(text):
            if _is_random(match["secret"]):
                yield RecognizerMatch("SECRET", *match.span("secret"), 0.6)


def _is_random(value: str) -> bool:
    """Return whether the characters are of all kinds and evenly spread, as a generator draws them."""
    if not any(map(str.isupper, value)) or not any(map(str.islower, value)):
        return False
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * log2(share) for share in shares) >= _MIN_ENTROPY
