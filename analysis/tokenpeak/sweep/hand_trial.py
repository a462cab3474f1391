"""Trial by hand: one config of a plan as the variables with which `ansible-playbook trial.yml` carries it out.

No controller renews its lease, so that it has the longest that its node allows. Then the guard gives the node back.
"""

import json
import secrets
import time
from pathlib import Path

from tokenpeak.errors import PlanError, suggestion
from tokenpeak.node.protocol.requests import limits
from tokenpeak.records import NodeFacts, Plan, PlannedConfig
from tokenpeak.spec.sweep import SweepSpec
from tokenpeak.sweep.claim import SweepClaim
from tokenpeak.sweep.interrupt import Interrupt
from tokenpeak.sweep.inventory import Node
from tokenpeak.sweep.secret import master_secret
from tokenpeak.sweep.trial_request import TrialRequest, write_requests


def write_hand_trial(
    path: Path, config_name: str | None, *, spec: SweepSpec, plan: Plan, node: Node, facts: NodeFacts
) -> PlannedConfig:
    """Write the variables to `path`, and the requests into a folder beside it; which config it is.

    Without a name that is the plan's first. Raises PlanError for a config that the plan has not, and for a node whose
    declaration cannot be rendered here.
    """
    planned = _planned(plan, config_name)
    if node.declaration is None:
        raise PlanError(f"The declaration of {node.name} cannot be rendered here: see tokenpeak check.")
    most = limits(dict(node.declaration))
    deadlines = spec.deadlines
    trial_id = f"0001-{planned.config.config_id}"
    request = TrialRequest(
        sweep_id="by-hand",
        trial_id=trial_id,
        spec=spec,
        node=node,
        facts=facts,
        hardware=plan.hardware,
        declaration=node.declaration,
        planned=planned,
        replicate=0,
        restore_production=True,
        keep_lock=False,
        trial_deadline_s=most["trial_deadline_max_s"] - deadlines.engine_stop_s - deadlines.production_ready_s,
        lease_offset_s=most["lease_max_s"] - deadlines.lease_s,
    )
    # A name of its own, so that the node takes no earlier one for a newer controller of the same sweep.
    claim = SweepClaim(Path(f"by-hand-{secrets.token_hex(4)}"), 1, Interrupt())
    files = write_requests(
        request,
        path.absolute().with_suffix(".d") / f"{trial_id}-{secrets.token_hex(4)}",
        argv=request.argv(),
        started_at_unix_s=time.time(),
        secret=master_secret(),
        claim=claim,
        production_at_start=None,
    )
    trial = {"node": node.name, "launch": str(files.launch), "job": str(files.job), "finish": str(files.finish)}
    path.write_text(json.dumps({"tokenpeak_trial": trial}, indent=1) + "\n")
    return planned


def _planned(plan: Plan, config_name: str | None) -> PlannedConfig:
    """The config of that name."""
    names = [each.config.name for each in plan.feasible]
    found = next((each for each in plan.feasible if config_name in (None, each.config.name)), None)
    if found is None:
        raise PlanError(f"The plan has no config {config_name!r}. {suggestion(config_name or '', names)}")
    return found
