"""A Service of Kubernetes, by a label of its selector that the node's pods lose and get back.

The label must be the pods' own and no part of the Deployment's selector: that would make other pods in their place.
A pod that starts anew has the label from its template, and joins when its readiness probe passes.
"""

from __future__ import annotations

import json

from tokenpeak.node.balancers.base import Balancer
from tokenpeak.node.error import ScriptError
from tokenpeak.node.managers.kubernetes import KubernetesManager, pod_selector
from tokenpeak.node.shown import shown_value
from tokenpeak.node.state import Json


class KubernetesBalancer(Balancer):
    """declared: service, and label (KEY=VALUE, of its selector)."""

    name = "kubernetes"

    def members(self) -> list[str]:
        """The declared service."""
        return [str(self.needed("service"))]

    def joined(self) -> list[str]:
        """The service, where a pod of production has the label."""
        key, value = self._label()
        pods = self._kubernetes.pods(self._kubernetes.found())
        has = [(pod.get("metadata") or {}).get("labels", {}).get(key) == value for pod in pods]
        return self.members() if any(has) else []

    def leave(self, members: list[str]) -> None:
        """Take the label off production's pods."""
        self._set_label(f"{self._label()[0]}-")

    def is_idle(self, members: list[str]) -> bool:
        """Whether the service has none of production's pods as an endpoint any more; what runs there, metrics say."""
        return not set(self._addresses()) & self._own_addresses()

    def rejoin(self, members: list[str]) -> None:
        """Give production's pods the label."""
        self._set_label("=".join(self._label()))

    def is_back(self, members: list[str]) -> bool:
        """Whether all of production's pods are endpoints that are ready."""
        return self._own_addresses() <= set(self._addresses())

    def others(self) -> int:
        """How many other endpoints are ready."""
        return len(set(self._addresses()) - self._own_addresses())

    @property
    def _kubernetes(self) -> KubernetesManager:
        if not isinstance(self.manager, KubernetesManager):
            raise ScriptError("declaration", "tokenpeak_drain.kubernetes is for production with manager kubernetes.")
        return self.manager

    def _label(self) -> tuple[str, str]:
        key, _, value = str(self.needed("label")).partition("=")
        selector: Json = (self._kubernetes.found()["spec"].get("selector") or {}).get("matchLabels") or {}
        if not value or key in selector:
            raise ScriptError(
                "declaration",
                f"tokenpeak_drain.kubernetes.label is {shown_value(self.declared['label'])}: give KEY=VALUE "
                "of the service's "
                "selector that is no part of production's own.",
            )
        return key, value

    def _set_label(self, word: str) -> None:
        own = pod_selector(self._kubernetes.found())
        self.do(self._kubernetes.kubectl("label", "pods", "-l", own, word, "--overwrite"))

    def _addresses(self) -> list[str]:
        raw = self.do(self._kubernetes.kubectl("get", "endpoints", str(self.needed("service")), "-o", "json"))
        try:
            return [
                str(address.get("ip"))
                for subset in json.loads(raw).get("subsets") or []
                for address in subset.get("addresses") or []
            ]
        except (AttributeError, TypeError, ValueError, RecursionError) as error:
            raise ScriptError(
                "drain", "The endpoints that kubectl shows cannot be read: look at the service."
            ) from error

    def _own_addresses(self) -> set[str]:
        pods = self._kubernetes.pods(self._kubernetes.found())
        return {str(pod["status"]["podIP"]) for pod in pods if (pod.get("status") or {}).get("podIP")}
