"""Git as it is started here: in the repository that it is given, whatever a hook or `rebase --exec` has set."""

import os

_PLACES = frozenset(
    f"GIT_{name}"
    for name in (
        *("DIR", "WORK_TREE", "IMPLICIT_WORK_TREE", "INDEX_FILE", "COMMON_DIR", "PREFIX", "NAMESPACE", "CONFIG"),
        *("OBJECT_DIRECTORY", "ALTERNATE_OBJECT_DIRECTORIES", "QUARANTINE_PATH", "SHALLOW_FILE", "GRAFT_FILE"),
        *("NO_REPLACE_OBJECTS", "REPLACE_REF_BASE", "INTERNAL_SUPER_PREFIX", "TEMPLATE_DIR"),
    )
)
"""What `git rev-parse --local-env-vars` names and more; how a user logs in (GIT_SSH_COMMAND, GIT_ASKPASS) remains."""
NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
"""Options of a git that runs no hook of the user's, which is meant for his own commits."""


def environment() -> dict[str, str]:
    """The variables of this process without those by which git works in another repository than the one it is given."""
    return {name: text for name, text in os.environ.items() if name not in _PLACES}
