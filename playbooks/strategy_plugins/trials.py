"""Strategy `trials`: one host's trials after the other, in one run of a playbook, whatever the other hosts do."""

import time

from ansible.executor.play_iterator import HostState, IteratingStates

from tokenpeak.sweep.ansible.dispatch import HostQueue
from tokenpeak.sweep.ansible.plugins import POLL_S, NodeStrategy

DOCUMENTATION = """
    name: trials
    short_description: As nodes, and a host begins again after its last task
    description:
        - A host that has come to the end of its tasks, or whose trial the controller has ended, has all of them before
          it again, until its task of the action next_trial has failed or has answered that nothing is left for it.
        - The last task of the play must include no other.
    author: TokenPeak
"""


class StrategyModule(NodeStrategy):
    """A round leaves nothing behind: each begins with the blocks of the play, so that memory does not grow."""

    unreachable_fails = True

    def __init__(self, tqm):
        super().__init__(tqm)
        self._over = set()
        self._waiting = set()
        self._has_failed = False

    def run(self, iterator, play_context):
        """Whether all went well, of every round."""
        self._set_hosts_cache(iterator._play)
        self._waiting = {host.name for host in super().get_hosts_left(iterator)}
        self._queue = HostQueue(self._variable_manager.extra_vars.get("tokenpeak_dispatch"))
        result = super().run(iterator, play_context)
        return result or (self._tqm.RUN_FAILED_HOSTS if self._has_failed else result)

    def _process_pending_results(self, iterator, one_pass=False, max_passes=None):
        """As the strategy above; then hosts that are through begin again, or end."""
        results = super()._process_pending_results(iterator, one_pass=one_pass, max_passes=max_passes)
        for result in results:
            name, data = result.host.name, result._return_data
            if result.task.action == "next_trial" and (data.get("over") or result.is_failed()):
                self._over.add(name)
                iterator.set_run_state_for_host(name, IteratingStates.COMPLETE)
            elif data.get("tokenpeak_round_over"):
                self._begin_again(iterator, result.host)
        for host in super().get_hosts_left(iterator):
            if host.name in self._waiting or host.name in self._over or self._blocked_hosts.get(host.name):
                continue
            _, task = iterator.get_next_task_for_host(host, peek=True)
            if task is None:
                self._begin_again(iterator, host)
        return results

    def get_hosts_left(self, iterator):
        """The hosts that are at work, and those that are through for good; waits while there is nothing for any."""
        while True:
            hosts = super().get_hosts_left(iterator)
            self._waiting.difference_update([name for name in self._waiting if self._queue.takes(name)])
            left = [host for host in hosts if host.name not in self._waiting]
            if len(left) == len(hosts) or self._tqm._terminated or any(one.name not in self._over for one in left):
                return left
            time.sleep(POLL_S)

    def _has_news(self):
        return self._queue.has_any(self._waiting)

    def _at_work(self, iterator):
        """The hosts within a round."""
        idle = self._over | self._waiting
        return [host.name for host in super().get_hosts_left(iterator) if host.name not in idle]

    def _begin_again(self, iterator, host):
        """Put the play's tasks before a host; that the first is next says that the round is over, in the callbacks."""
        name = host.name
        self._has_failed = self._has_failed or name in self._tqm._failed_hosts
        self._tqm._failed_hosts.pop(name, None)
        removed = iterator._play._removed_hosts
        removed[:] = [other for other in removed if other != name]
        iterator.set_state_for_host(name, HostState(blocks=iterator._blocks))
        _, first = iterator.get_next_task_for_host(host, peek=True)
        self._tqm.send_callback("v2_runner_on_start", host, first)
        self._waiting.add(name)
        self._queue.put(name)
