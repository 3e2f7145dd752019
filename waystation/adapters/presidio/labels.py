"""Words that say of a value beside them what it is, in several languages: parts of regular expressions, in lower case.

They are searched in `lower(text)`: patterns that ignore case take three times as long.
"""

import string

PASSWORD = (
    r"passwords?|passwd|pass[ -]?phrase|passcode|pwd|pre-?shared[ -]?key|\bpsk\b|[_.-]pass(?=[\"']?\s?[:=])"
    r"|[a-z]pass(?=[\"']?\s?[:=])|identified\sby|passwort|kennwort|contraseña|contrasena|\bsenha\b|mot\sde\spasse|wachtwoord"
    r"|parola\sd['’]ordine|hasło|lösenord|adgangskode|passord|salasana|\bheslo\b|jelszó|парол[ья]|κωδικός πρόσβασης"
    r"|\bşifre|mật\skhẩu|kata\ssandi|รหัสผ่าน|密码|密碼|口令|パスワード|비밀번호|암호|كلمة\s(?:المرور|السر)|סיסמה|पासवर्ड"
)
WEAK = r"\b(?:pass|pw|mdp|clave|parola)\b"
"""Words that mean other things, too: only what looks like a password counts behind them."""
ACCESS = (
    r"(?:api|access|auth|account|private|signing|encryption|secret|service|subscription|license|fernet)[_ -]?key"
    r"(?:_base)?|client[_ -]?secret"
)
KEY = r"secret|token|credentials?"

PHONE = (
    r"\b(?:tele)?(?:phone|fax)\b|\b(?:tel|mobile|cell|whatsapp|sms|call (?:me|us|him|her|them))\b"
    r"|\b(?:tel[eé]fon[oe]?|telefoon|t[eé]l[eé]phone|telefonnummer|rufnummer|handy(?:nummer|(?=\s?[:.]))|mobil(?:nummer)?|m[oó]vil|celular|cellulare"
    r"|portable(?=\s?:)|telem[oó]vel|mobiel|komórka|puhelin|тел|телефон|мобильный)\b"
    r"|电话|電話|手机|手機|携帯|전화|휴대폰"
)
CARD = (
    r"\b(?:(?:credit|debit|bank)[ -]?)?cards?\b(?:[ -]?(?:number\b|no\b\.?|nr\b\.?|#))?"
    r"|\b(?:kredit|bank)?karten?(?:nummer)?\b"
    r"|\bcarte(?:\s(?:bancaire|de\scrédit))?\b|\btarjeta(?:\sde\scr[eé]dito)?\b"
    r"|\bcarta\sdi\scredito\b|\bcartão(?:\sde\scrédito)?\b"
    r"|\bkaartnummer\b|卡号|卡號|カード番号|카드번호"
)

_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def lower(text: str) -> str:
    """The text in lower case, with every character in its place."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_ASCII_LOWER)
