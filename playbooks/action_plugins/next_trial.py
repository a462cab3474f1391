"""Action `next_trial`: what its host is to do next, for the strategy `trials`.

    next_trial:
      given: "{{ tokenpeak_trial | default(omit) }}"   # by hand, from -e @trial.json: this one, once, on its node

From a controller it waits until there is something. The result has it as `trial`, or `over` where nothing is left.
"""

from ansible.plugins.action import ActionBase

from tokenpeak.sweep.ansible.dispatch import next_assignment


class ActionModule(ActionBase):
    """Holds its host's place for as long as the controller has nothing for it."""

    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(("given",))

    def run(self, tmp=None, task_vars=None):
        """The host's next trial."""
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        if address := task_vars.get("tokenpeak_dispatch"):
            answer = next_assignment(address, task_vars["inventory_hostname"])
        else:
            answer = {"assignment": self._given(task_vars)}
        trial = answer.get("assignment")
        return {**result, "trial": trial or {}, "round": answer.get("round"), "over": trial is None}

    def _given(self, task_vars):
        """The trial that was given by hand, where it is this host's; once it has run, this task has a result."""
        given = self._task.args.get("given") or {}
        is_its = given.get("node") in (None, task_vars["inventory_hostname"])
        return given if given and is_its and self._task.register not in task_vars else None
