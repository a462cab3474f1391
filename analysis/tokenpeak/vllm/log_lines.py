"""Lines of an engine's log without what stands before their text: colours, time stamps, processes, ranks, levels.

Whatever reads a log matches these lines, so that no pattern knows of a prefix. Of the blanks behind a prefix one goes
with it: the indentation of what follows stays, as the reason of a validation error stands indented below it.
"""

import re

LINE_CHARACTERS = 4096
"""Characters of a line that are looked through: the engine chooses how long it is."""
_DATE = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_COLOUR = re.compile(
    # With its escape character, and where a viewer or an issue has dropped or spelled it.
    r"(?:\x1b|\^\[|[␛←]|\\(?:x1b|u001b|e|033))\[[\d;]{0,20}[A-Za-z]|\[?\b\d{1,3}(?:;\d{1,3}){1,5}m|\[\d{1,3}m"
)
_PREFIXES = (
    # vLLM: (EngineCore_DP0 pid=9), (VllmWorker rank=1 pid=11); Ray: (RayWorkerWrapper pid=7, ip=10.0.0.2), (raylet)
    r"\([^()]{0,80}\bpid=[^()]{1,80}\)|\((?:raylet|autoscaler)[^()]{0,80}\)",
    # torch: [rank0]:, and its C++ log: [E1128 09:00:00.123456789 ProcessGroupNCCL.cpp:616]
    r"\[(?:rank|default) ?\d{1,6}\]:?",
    r"\[[IWEF]\d{3,8} \d\d:\d\d:\d\d\.\d{1,9} [^\]]{1,100}\]",
    # journald, short and with an ISO date
    rf"(?:[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{{1,9}})?|{_DATE}) "
    r"[\w.-]{1,100} [^\s\[\]:]{1,100}(?:\[\d{1,10}\])?:",
    # docker logs --timestamps, kubectl logs --timestamps, and the files of containerd
    rf"\[?{_DATE}\]?(?: std(?:out|err) [FP])?",
    # docker compose logs; kubectl logs --prefix
    r"(?:\[[\w.-]{1,100}\]|[A-Za-z][\w.-]{0,99})\s{1,40}\|(?=\s|$)",
    r"\[pod/[^\]\s]{1,300}\]",
    # what wraps vLLM: FastChat, vLLM-Omni, a frame of k9s, a quotation
    r"\|(?: (?:[A-Z]{4,8}|std(?:out|err)) \|){0,2}",
    r"\[Stage-\d{1,4}\]|[│>](?=\s)",
    # vLLM's own level and place, 0.6 without the bracket; uvicorn's level. Lines of other levels keep theirs: nothing
    # in them is an exception.
    r"(?:ERROR|CRITICAL) (?:\d\d-\d\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?) \[?[^\]]{1,100}\]",
    r"(?:ERROR|CRITICAL):(?= {2,8})\s{1,6}",
)
_PREFIX = re.compile(rf"(?:\s{{0,8}}(?:{'|'.join(_PREFIXES)})[ \t]?){{1,8}}")


def plain_lines(log: str) -> list[str]:
    """The lines of a log without prefixes and colours, each cut at LINE_CHARACTERS."""
    return [plain_line(line) for line in log.splitlines()]


def plain_line(line: str) -> str:
    """One line without prefixes and colours."""
    text = _COLOUR.sub("", line[:LINE_CHARACTERS])
    prefix = _PREFIX.match(text)
    return text[prefix.end() :] if prefix else text
