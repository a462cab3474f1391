"""Strategy `nodes`: as `free`, and what becomes of one node's task is that node's alone."""

from tokenpeak.sweep.ansible.plugins import NodeStrategy

DOCUMENTATION = """
    name: nodes
    short_description: Tasks as fast as each host can, whatever becomes of the others
    description:
        - As the strategy free. A task's process that dies or takes too much memory, or a file of tasks that cannot be
          read, is a failure of its own host.
    author: TokenPeak
"""


class StrategyModule(NodeStrategy):
    """Nothing more."""
