"""Action `note_failure`: in a rescue, that the failure before it counts.

What an inventory's own tasks have rescued themselves is no failure of the trial; this says which is.
"""

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Goes to no host."""

    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset()

    def run(self, tmp=None, task_vars=None):
        """Nothing more than that it was here."""
        return {**super().run(tmp, task_vars), "changed": False}
