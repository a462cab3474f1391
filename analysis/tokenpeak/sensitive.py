"""Patterns of sensitive text: addresses, paths, secrets, credentials, people and machines, in one table.

`mask` replaces each by a numbered word of its kind, so that what was equal stays equal and what differed stays apart.
"""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlsplit

Mask = Callable[[str, str], str]
"""The word for a text of a kind: (kind, text) → word."""

HARMLESS_HOSTS = frozenset({"127.0.0.1", "0.0.0.0", "::1", "::", "localhost"})  # noqa: S104
PUBLIC_HOSTS = re.compile(
    r"(?:^|\.)(?:huggingface\.co|hf\.co|github\.com|githubusercontent\.com|pytorch\.org|nvidia\.com|vllm\.ai|"
    r"readthedocs\.io|python\.org|pypi\.org|arxiv\.org|docker\.(?:com|io)|w3\.org|iana\.org|modelscope\.cn)$"
)
"""Sites that everybody reads; a host that is not among them is somebody's own."""
ROUTES = re.compile(
    r"/(?:v1(?:/[a-z_]+){0,2}|v2(?:/[a-z_]+)?|health|ping|metrics|version|load|tokenize|detokenize|invocations|"
    r"server_info|reset_prefix_cache|docs|redoc|openapi\.json|generate|score|rerank|pooling|classify)/?"
)
"""Paths of the engine's API, which look like a file's."""
LIBRARIES = re.compile(r"/(?:site|dist)-packages/|/lib/python3\.\d+/")
"""What follows is a file of a published library, and says nothing of the machine."""
DEVICES = re.compile(r"/dev/(?:null|shm|nvidia\w*|kfd|dri|stdin|stdout|stderr)")

SECRET_NAME = re.compile(
    r"secret|passw(?:or)?d|passphrase|credential|(?:^|[_-])(?:token|pwd|auth|authorization|bearer)(?:$|[_-])|"
    r"(?:^|[_-])(?:keys?|apikey|accesskey|pat|pw|creds?|jwt|sas|dsn|cookie)(?:$|[_-])|"
    r"(?:private|signing|encryption)key|[_-]pass$|(?:access|auth|api|hub|refresh|id)token$",
    re.IGNORECASE,
)
_OF_A_FILE = re.compile(r"(?:file|path|dir)$", re.IGNORECASE)
PLAIN = re.compile(r"[-+]?\d+(?:\.\d+)?|true|false|none|null|auto|yes|no|on|off", re.IGNORECASE)
"""A value that is no secret whatever its name is."""

_WORD = r"[A-Za-z0-9_-]{0,40}"
_NAMES = r"(?:(?:api|access|private)[ _-]?key|secret|passw(?:or)?d|passphrase|credentials?)"
_TOKENS = r"(?:access|api|auth|bearer|hf|id|refresh)[ _-]token"
_Q = r"\\*[\"']"
"""A quote, perhaps of a text within a text."""
_FLAG = rf"(?<![A-Za-z0-9_-])--?{_WORD}(?:{_NAMES}|token|auth)"
_MIXED = r"(?=[^\s\"'<,;&]{0,400}\d)(?=[^\s\"'<,;&]{0,400}[A-Za-z])"
"""Ahead lies a word of letters and digits. What looks ahead, or may be all in vain, is bounded: texts are of others."""
_START = r"(?<![A-Za-z0-9])"


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """Texts of one kind; `hint` stands in every one of them, or is empty. The group `it`, if there is one, goes."""

    kind: str
    regex: re.Pattern[str]
    hint: str = ""
    is_secret: bool = False
    is_token: bool = False
    """It is a secret by its own form, wherever it stands; others are by the words around them."""


def _of(kind: str, regex: str, hint: str = "", flags: int = 0) -> Pattern:
    return Pattern(kind=kind, regex=re.compile(regex, flags), hint=hint)


def _secret(regex: str, hint: str = "", flags: int = 0) -> Pattern:
    return replace(_of("secret", regex, hint, flags), is_secret=True)


def _token(regex: str, hint: str = "", flags: int = 0) -> Pattern:
    return replace(_secret(regex, hint, flags), is_token=True)


PRIVATE_KEY = _token(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", "-----BEGIN", re.DOTALL
)
"""The only pattern over several lines."""
URL = _of("url", r"\b[a-zA-Z][a-zA-Z0-9+.-]{0,20}://(?:<[a-z]+-\d+>@)?[^\s\"'<>|(){}\\^`]+", "://")
PATTERNS: tuple[Pattern, ...] = (
    PRIVATE_KEY,
    _secret(r"(?<![\w/.-])[^\s:/@\"'<>=,;]{1,200}:[^\s:/@\"'<>]{1,200}@[\w.-]+", "@"),
    _secret(r"(?i:authorization)[\"']?\s*[:=]\s*[\"']?\w+\s+(?P<it>[^\s\"'<,;]{4,})"),
    _secret(r"(?i:bearer)[ :=]+(?P<it>(?=\S{0,400}[\d._~+/=-])[A-Za-z0-9._~+/=-]{8,})"),
    # A long one is taken with or without its point: to look for the point in vain from each beginning takes the square.
    _token(_START + r"eyJ(?:[\w-]{6,40}\.[\w-]{4,}|[\w-]{20,}(?:\.[\w-]*)?)(?:\.[\w-]*)?", "eyJ"),
    _token(_START + r"hf_[A-Za-z0-9]{16,}", "hf_"),
    _token(_START + r"sk-[A-Za-z0-9_-]{12,}", "sk-"),
    _token(_START + r"(?:gh[opsur]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|nvapi-[\w-]{16,})"),
    _token(_START + r"(?:(?:AKIA|ASIA)[0-9A-Z]{12,}|AIza[\w-]{30,}|xox[abeprs]-[\w-]{10,}|r8_[A-Za-z0-9]{30,})"),
    # Of a database: user, password, host and name, in an order of each driver's own.
    _secret(r"(?i:\bjdbc:[a-z0-9]{1,20}:)(?P<it>[^\s\"'<>]+)", ":"),
    _secret(rf"(?<![A-Za-z0-9_-])(?i:token)\s+(?:is\s+|was\s+)?{_Q}(?P<it>[A-Za-z0-9._~+/=-]+)(?={_Q})", "oken"),
    # A flag and its value in quotes, side by side or as two texts of a printed list.
    _secret(rf"{_FLAG}(?:{_Q})?(?:\s*[,=]\s*|\s+)b?{_Q}(?P<it>(?!--)[^\"'<\\]+)(?={_Q})", "-", re.IGNORECASE),
    _secret(rf"{_FLAG}(?:=|\s+)(?P<it>(?!-)[^\s\"'<,;]{{4,}})", "-", re.IGNORECASE),
    _secret(rf"{_NAMES}{_WORD}[\"']?\s*[:=]\s*\[?[bB]?[\"']?(?P<it>[^\s\"'<\[\](){{}},;&]{{4,}})", "", re.IGNORECASE),
    # In prose, where what follows may be any word: one of letters and digits.
    _secret(
        rf"(?:{_NAMES}|{_TOKENS})[\"']?(?:\s+(?:is|was))?:?\s+{_Q}?(?P<it>{_MIXED}[^\s\"'<\[\](){{}},;&]{{4,}})",
        "",
        re.IGNORECASE,
    ),
    _secret(
        r"(?:token|auth(?:orization)?|(?<![A-Za-z])pwd|[?&](?:key|sig|signature))[\"']?\s*[:=]\s*\[?[\"']?"
        rf"(?P<it>{_MIXED}[^\s\"'<\[\](){{}},;&]{{8,}})",
        "",
        re.IGNORECASE,
    ),
    URL,
    _of("uuid", r"\b(?:GPU-|MIG-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"),
    _of("uuid", r"\b(?:GPU|MIG)-[0-9a-fA-F][0-9a-fA-F-]{7,}\b"),
    _of("mac", r"(?<![\w:-])[0-9a-fA-F]{2}(?:([:-])[0-9a-fA-F]{2})(?:\1[0-9a-fA-F]{2}){4}(?![\w:-])"),
    _of("login", r"(?<![\w.+%-])[\w.+%-]+@(?!sha256:)[A-Za-z0-9][\w.-]*\w", "@"),
    _of(
        "address",
        r"(?<![\w:.])(?:[0-9a-fA-F]{0,4}:){2,8}(?:(?:\d{1,3}\.){3}\d{1,3}|[0-9a-fA-F]{1,4})?(?:%[\w.-]+)?(?![\w:])",
        ":",
    ),
    _of("address", r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d|-(?:py|cp)\d|\.dist-info|\.whl|\.tar)", "."),
    _of("address", r"\bip-\d{1,3}(?:-\d{1,3}){3}\b", "ip-"),
    _of(
        "host",
        r"(?<![\w.-])(?:[A-Za-z0-9_-]+\.)+(?:local|internal|lan|corp|intranet|intra|localdomain|svc|home\.arpa|lab)"
        r"(?![\w-]|\.\w)",
        ".",
    ),
    # By an ending that no module or file has; one of two letters needs three parts.
    _of(
        "host",
        r"(?<![\w.@/-])(?:(?:[A-Za-z0-9_-]+\.)+(?:com|net|org|edu|gov|mil|info|biz|cloud|tech|online|site|xyz|example)"
        r"|(?:[A-Za-z0-9_-]+\.){2,}(?:ai|app|dev|io|ac|ar|at|au|be|br|ca|ch|cn|cz|de|dk|es|eu|fi|fr|gr|hk|hu|ie|il|in|"
        r"it|jp|kr|mx|nl|no|nz|pl|pt|ro|ru|se|sg|si|sk|tr|tw|ua|uk|us|za))(?![\w-]|\.\w)",
        ".",
    ),
    _of("path", r"(?<![\w\\])\\{2,4}[\w.$-]+(?:\\{1,2}[\w.$%{}@+-]+)+|(?<![^\s\"'(=,;])//(?=\w)[^\s\"'<>|;,(){}\[\]]+"),
    _of(
        "path",
        r"(?:file:/{1,3}|(?<![\w.\-/<~@+$>)\]}])/|(?<![\w/])~[\w.-]*/)(?=[\w.$%{@+<-])"
        # A word that was replaced before is a part of the path.
        r"(?:[^\s\"'<>|;,(){}\[\]:=&*?`]|<[a-z]+(?:-[a-z]+)?-\d+>)+",
        "/",
    ),
    _of(
        "user",
        r"(?<![A-Za-z])(?:user(?:name)?|login|logname)[\"']?\s*[:=]\s*[\"']?(?P<it>(?!root\b|none\b)[A-Za-z_][\w.-]*)",
        "",
        re.IGNORECASE,
    ),
)
KINDS = {
    "secret": "secrets",
    "url": "foreign URLs",
    "uuid": "device or machine ids",
    "mac": "hardware addresses",
    "login": "e-mail addresses or logins",
    "address": "IP addresses",
    "host": "host names",
    "path": "paths",
    "user": "user names",
    "name": "names of nodes and load hosts",
    "private": "private settings",
    "text": "logs and free text",
}
"""Each kind as a summary says it."""

MODEL_PLACE = "/PATH/TO/"
"""Stands for the folder of a node in which a model lies, so that a command shows that a path belongs there."""
LABEL = re.compile(rf"<?(?:node|load-host|{'|'.join(KINDS)})-\d+>?", re.IGNORECASE)
"""The words in a cleaned text for something sensitive."""


def mask(text: str, word: Mask, *, secrets_only: bool = False) -> str:
    """The text with everything sensitive in it replaced by `word(kind, found)`."""
    for pattern in PATTERNS:
        if (secrets_only and not pattern.is_secret and pattern is not URL) or pattern.hint not in text:
            continue
        text = pattern.regex.sub(partial(_replaced, pattern=pattern, word=word, secrets_only=secrets_only), text)
    return text


def _replaced(match: re.Match[str], pattern: Pattern, word: Mask, secrets_only: bool) -> str:
    whole = match[0]
    if pattern is URL:
        return _url(whole, word, secrets_only)
    group = "it" if "it" in pattern.regex.groupindex else 0
    text = match[group]
    if not _is_meant(text, match, pattern):
        return whole
    start, end = match.start(group) - match.start(), match.end(group) - match.start()
    if pattern.kind == "path":
        return _path(text, word)
    return whole[:start] + word(pattern.kind, text) + whole[end:]


def _is_meant(text: str, match: re.Match[str], pattern: Pattern) -> bool:
    """Whether a text that looks like one of its kind is one, and not what has been put for one."""
    if LABEL.fullmatch(text):
        return False
    if pattern.is_secret:
        return not PLAIN.fullmatch(text)
    if pattern.kind == "address":
        return text.startswith("ip-") or _is_address(text, match)
    if pattern.kind == "host":
        return not PUBLIC_HOSTS.search(text)
    if pattern.kind == "path":
        return not ROUTES.fullmatch(text) and not DEVICES.fullmatch(text)
    return True


def _is_address(text: str, match: re.Match[str]) -> bool:
    """An address that names a machine; a time, a version, and a loopback address are none."""
    bare = text.partition("%")[0]
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return False
    before = match.string[max(0, match.start() - 12) : match.start()]
    if address.version == 4 and re.search(r"(?:[=<>~!]=|\bv|\bversion[ :=]*)$", before, re.IGNORECASE):
        return False
    return bare not in HARMLESS_HOSTS


def _path(text: str, word: Mask) -> str:
    """The replacement of a path, and what follows where libraries are installed."""
    library = LIBRARIES.search(text)
    bare = text.rstrip(".")
    if library is None:
        return word("path", bare) + text[len(bare) :]
    return f"{word('path', text[: library.start()])}{text[library.start() :]}"


def _url(text: str, word: Mask, secrets_only: bool) -> str:
    """A URL without user and password; without host and place too, unless everybody knows them."""
    bare = text.rstrip(".,;:!]")
    rest = text[len(bare) :]
    try:
        parts = urlsplit(bare)
        host, port = parts.hostname or "", f":{parts.port}" if parts.port else ""
    except ValueError:
        return word("url", bare) + rest
    if parts.scheme == "file":
        return bare + rest if secrets_only else word("path", bare) + rest
    place = bare.partition("://")[2].partition("/")
    login, at, _ = place[0].rpartition("@")
    shown = (word("secret", login) + "@" if at and not login.startswith("<") else f"{login}{at}") if at else ""
    query = f"?{parts.query}" if parts.query else ""
    where = f"[{host}]" if ":" in host else host
    if secrets_only or PUBLIC_HOSTS.search(host):
        return f"{parts.scheme}://{shown}{where}{port}{parts.path}{query}{rest}"
    if host not in HARMLESS_HOSTS and not LABEL.fullmatch(host):
        where = word("address" if re.fullmatch(r"[\d.]+|.*:.*", host) else "host", host)
    path = parts.path
    if path.strip("/") and not ROUTES.fullmatch(path) and not LABEL.fullmatch(path[1:]):
        path = f"/{word('path', path)}"
    return f"{parts.scheme}://{shown}{where}{port}{path}{rest}"


def is_secret_setting(name: str, value: object) -> bool:
    """A name such as HF_TOKEN or api_key with a value that could be a secret; of a file the name is none."""
    if not SECRET_NAME.search(name) or value in (None, "") or PLAIN.fullmatch(str(value)):
        return False
    return not (_OF_A_FILE.search(name) and str(value).startswith(("/", "~", "./")))


def holds_token(text: str) -> bool:
    """A key or token of a known form stands in the text, whatever is said around it."""
    return any(pattern.is_token and pattern.regex.search(text) for pattern in PATTERNS)


def holds_secret(text: str) -> bool:
    """A token, a key, or a URL with a password stands in the text."""
    kinds: list[str] = []

    def note(kind: str, text: str) -> str:
        kinds.append(kind)
        return text

    mask(text, note, secrets_only=True)
    return "secret" in kinds
