"""Node strategy: Ansible's `free`, in which nothing that happens to one host ends or holds up the others.

Imported by the strategies of the playbooks, in Ansible's own process.
"""

import os
import time
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError, AnsibleParserError
from ansible.executor.task_result import _RawTaskResult
from ansible.plugins.strategy.free import StrategyModule as FreeStrategy

OWN_ACTIONS = ("next_trial", "note_failure", "node_command", "node_script", "load_client", "survey", "channel")
"""Actions of the playbooks, whose results are made on this machine."""
POLL_S = 0.02
_LOOK_S = 0.2
_WORKER_BYTES = 512 << 20
"""Of memory in a task's process, with what it shares: it holds what a host prints several times over."""
_HOSTS = ("add_host", "add_group")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class NodeStrategy(FreeStrategy):  # type: ignore[misc]  # Ansible has no types
    """Task processes that die or take too much memory are failures of their own hosts."""

    unreachable_fails = False
    """A task of others whose host is out of reach has failed, so that the play goes on with its rescue."""
    _looked_s = 0.0

    def _process_pending_results(self, iterator: Any, one_pass: bool = False, max_passes: int | None = None) -> Any:
        """Results since the last call, which comes between two looks at all hosts."""
        if not one_pass:
            self._await_result(iterator)
        return super()._process_pending_results(iterator, one_pass=one_pass, max_passes=max_passes)

    def _load_included_file(self, *arguments: Any, **options: Any) -> Any:
        """A file that is no list of tasks fails where it is included, and ends no other host's run."""
        try:
            return super()._load_included_file(*arguments, **options)
        except AnsibleParserError as error:
            raise AnsibleError(str(error)) from error

    def _convert_wire_task_result_to_raw(self, result: Any) -> Any:
        """A task that is none of ours changes no inventory."""
        raw = super()._convert_wire_task_result_to_raw(result)
        data = raw._return_data
        if raw.task.action not in OWN_ACTIONS and isinstance(data, dict):
            for one in (data, *filter(_is_object, data.get("results") or ())):
                for key in _HOSTS:
                    one.pop(key, None)
            if self.unreachable_fails and data.pop("unreachable", False):
                data["failed"] = True
        return raw

    def _await_result(self, iterator: Any) -> None:
        """Wait while each host has a task at work: with hundreds of them, a look at all takes its time."""
        hosts = self._at_work(iterator)
        while hosts and not self._tqm._terminated and not self._has_news():
            self._look_at_workers()
            if self._results or not all(map(self._blocked_hosts.get, hosts)):
                return
            time.sleep(POLL_S)

    def _has_news(self) -> bool:
        """Whether there is something to do for a host that waits."""
        return False

    def _at_work(self, iterator: Any) -> list[str]:
        """The hosts for whose tasks the play waits."""
        return [host.name for host in self.get_hosts_left(iterator)]

    def _look_at_workers(self) -> None:
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        for place, worker in enumerate(self._workers):
            if worker is None:
                continue
            if worker.exitcode:
                self._workers[place] = None
                self._fail(worker)
            elif worker.is_alive() and _resident_bytes(worker.pid) > _WORKER_BYTES:
                worker.kill()

    def _fail(self, worker: Any) -> None:
        """A result in the place of the one that a process will never send, unless it had sent that before its end."""
        host, task = worker._host, worker._task
        words = "its task's process on this machine was ended: the host printed too much, or memory is short here"
        with self._results_lock:
            if self._blocked_hosts.get(host.name) and not any(one.host.name == host.name for one in self._results):
                data = {"failed": True, "msg": words}
                self._results.append(_RawTaskResult(host=host, task=task, return_data=data, task_fields={}))


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0  # it has ended
