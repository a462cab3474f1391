"""Host keys that SSH refuses: its message, with what to do.

SSH compares a host's key with known_hosts before it sends anything. Ansible, the lease channel and load hosts all reach
a host by SSH, and each repeats its words in a form of its own.
"""

_REFUSALS = ("Host key verification failed", "REMOTE HOST IDENTIFICATION HAS CHANGED", "host key is known for")

REFUSED = (
    "its host key is unknown or has changed, so nothing was sent there: compare fingerprints as playbooks/README.md "
    'says under "First contact", then put the right key into ~/.ssh/known_hosts (ssh-keygen -R HOST removes an old one)'
)


def with_remedy(said: str) -> str:
    """What SSH or Ansible said of a failed connection; of a host key that was refused, what to do instead."""
    return REFUSED if any(words in said for words in _REFUSALS) else said
