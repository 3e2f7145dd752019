"""Keys and tokens that show by their own form that they are some: as their issuers make them."""

import re
from collections.abc import Iterator

from waystation.adapters.presidio.formats import Hit
from waystation.patterns import proven

_ISSUED = proven(
    r"""(?<![A-Za-z0-9])(?:
      sk-ant-[\w-]{8,}
    | sk-(?=[A-Za-z_-]{0,40}\d)[A-Za-z0-9_-]{20,}
    | [srp]k_(?:live|test)_\w{10,} | whsec_[\w+/=]{16,}
    | A(?:KIA|SIA|BIA|CCA)[0-9A-Z]{16}\b
    | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_\w{20,} | gl(?:pat|dt|rt|cbt|ptt|ft|imt|soat|agent|oas|ffct)-[\w.-]{16,}
    | xox[abeoprs]-[\w-]{10,} | xapp-[\w-]{10,}
    | AIza[\w-]{30,} | ya29\.[\w-]{20,} | GOCSPX-[\w-]{20,}
    | [\w~.-]{3}\dQ~[\w~.-]{31,34}                                                 # a client secret of Azure
    | npm_[A-Za-z0-9]{30,} | pypi-[\w-]{50,} | rubygems_[0-9a-f]{40,} | dckr_(?:pat|oat)_[\w-]{20,}
    | (?:hf|api_org)_[A-Za-z0-9]{30,} | gsk_[A-Za-z0-9]{40,} | xai-[A-Za-z0-9]{40,} | pplx-[A-Za-z0-9]{32,}
    | r8_[A-Za-z0-9]{36,} | lsv2_(?:pt|sk)_[\w]{32,} | pa-[A-Za-z0-9_-]{40,}
    | SG\.[\w-]{16,100}+\.[\w-]{16,} | key-[0-9a-f]{32}\b | SK[0-9a-f]{32}\b | [0-9a-f]{32}-us\d{1,2}\b
    | do[opr]_v1_[0-9a-f]{40,} | shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32} | sq0(?:atp|csp|idp)-[\w-]{20,}
    | dapi[0-9a-f]{32}(?:-\d)?\b | dp\.(?:pt|st|ct|sa)\.[\w.-]{30,} | hv[sbr]\.[\w-]{20,}
    | [A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,} | gl(?:sa|c)_[\w=]{30,} | NRAK-[A-Z0-9]{27}\b | sntry[su]_[\w+/=]{30,}
    | lin_(?:api|oauth)_[A-Za-z0-9]{32,} | ntn_[A-Za-z0-9]{40,} | fig[do]_[\w-]{30,} | PMAK-[0-9a-f-]{30,}
    | pat[A-Za-z0-9]{14}\.[0-9a-f]{64} | ATATT3[\w=-]{30,} | sbp_[0-9a-f]{40} | pscale_(?:tkn|pw|oauth)_[\w.-]{30,}
    | CCIPAT_\w{20,} | HRKU-[\w-]{30,} | ops_eyJ[\w-]{50,}
    | A3-[A-Z0-9]{6}-[A-Z0-9-]{20,40}\b | AKCp[A-Za-z0-9]{60,} | cmVmd[A-Za-z0-9]{55,} | fo1_[\w-]{40,}
    | fm(?:1[ar]|2)_[\w+/]{60,}
    | sha256~[\w-]{40,} | sm_[aps]at_[A-Za-z0-9]{14,} | CLOJARS_[0-9a-z]{40,} | v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}
    | pul-[0-9a-f]{40}\b | rdme_[0-9a-z]{60,} | duffel_(?:test|live)_[\w=-]{40,} | EZ[AT]K[A-Za-z0-9]{50,}
    | FLW(?:SECK|PUBK)_TEST-[\w-]{12,}
    | shippo_(?:live|test)_[0-9a-fA-F]{40} | tk-us-[\w-]{40,} | xkeysib-[0-9a-f]{64}-\w{16}
    | ico-[A-Za-z0-9]{32}\b | LTAI[A-Za-z0-9]{18,}
    | s-s4t2(?:ud|af)-[0-9a-f]{64} | dt0c01\.[A-Z0-9a-z]{24}\.[A-Z0-9a-z]{60,}
    | ABSK[A-Za-z0-9+/]{100,}={0,2} | bedrock-api-key-[A-Za-z0-9+/=]{20,}
    | sgp_(?:\w{5,16}_)?[0-9a-fA-F]{40} | sq[aup]_[0-9A-Za-z]{40}\b | API-[A-Z0-9]{26}\b | GR1348941[\w-]{20,}
    | pnu_[A-Za-z0-9]{30,}
    | xoxe\.xox[bp]-[\w-]{20,} | [srp]k_prod_\w{10,} | EAA[AMC][A-Za-z0-9]{60,} | p8e-[a-z0-9]{32} | dnkey-[\w=-]{50,}
    | fio-u-[\w=-]{60,} | pk\.[a-z0-9]{60}\.[a-z0-9]{22} | sl\.[\w=-]{100,} | YC[A-Za-z0-9_-]{38}\b
    | AQVN[\w-]{35,} | t1\.[\w-]{1,100}\.[\w-]{80,}
    | (?:test|live)_(?:pub_)?[0-9a-f]{31,40}\b | glpat-[\w.-]{20,}
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
_MADE_UP = proven(r"[xX*]{8}|(?<=[a-z])_TOKEN|-my-")
"""As manuals write a key that is none."""
_HOOK_ADDRESS = proven(
    r"\bhttps?://(?:hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/"
    r"|(?:\w{1,10}\.)?discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/\d{1,30}/"
    r"|(?:outlook\.office(?:365)?\.com|[\w-]{1,80}\.webhook\.office\.com)/webhook(?:b2)?/|hooks\.zapier\.com/hooks/catch/"
    r"|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook/|hook\.[\w.]{1,30}\.?make\.com/"
    r"|maker\.ifttt\.com/trigger/[\w-]{1,80}/(?:json/)?with/key/"
    r"|[\w.-]{1,120}(?::\d{2,5})?/hooks/(?=[a-z0-9]{26}(?![\w/-])|[A-Za-z0-9]{17}/[A-Za-z0-9]{20}))"
    r"(?P<secret>[\w/@.-]{16,400})(?<![.@/-])"
)


def issued(text: str) -> Iterator[Hit]:
    """Keys, tokens and hashes of passwords, and the secret part of the address of a webhook."""
    for match in _ISSUED.finditer(text):
        if not _MADE_UP.search(match[0]):
            yield Hit("SECRET", match.start(), match.end(), 1.0)
    for match in _HOOK_ADDRESS.finditer(text):
        yield Hit("SECRET", *match.span("secret"), 0.9)
