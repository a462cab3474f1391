"""Action `survey`: the node package, run once from standard input, says what a host is and what serves at a port there.

survey:
script: /path/on/the/controller/survey.pyz
port: 8000
"""

from pathlib import Path

from tokenpeak.sweep.ansible.plugins import NodeAction

CODE = """\
import sys, tempfile
if sys.version_info < (3, 8):
    sys.exit("Python %d.%d is too old: install Python 3.8 or newer" % sys.version_info[:2])
bundle = tempfile.NamedTemporaryFile(suffix=".pyz")
bundle.write(sys.stdin.buffer.read())
bundle.flush()
sys.path.insert(0, bundle.name)
from tokenpeak.node.probe.survey import main
main()
"""
MOST_CHARACTERS = 200_000
"""Of an answer: what Ansible's own reports hold."""
START = """\
p=/usr/bin/python3; [ -x "$p" ] || p=$(command -v python3) || { echo "interpreter $p was not found" >&2; exit 127; }
if [ "$(id -u)" != 0 ] && sudo -n true 2>/dev/null; then exec sudo -n "$p" -I -B -c "$1" "$2"; fi
exec "$p" -I -B -c "$1" "$2"
"""


class ActionModule(NodeAction):
    """As root where the user may become it without a password."""

    _VALID_ARGS = frozenset(("script", "port"))

    def run(self, tmp=None, task_vars=None):
        """Status and output of the survey."""
        result = super().run(tmp, task_vars)
        words = ["sh", "-c", START, "sh", CODE, str(self._task.args["port"])]
        done = self.on_node(words, Path(self._task.args["script"]).read_bytes())
        return {**result, **done, "stdout": done["stdout"][-MOST_CHARACTERS:], "tokenpeak_step": "survey"}
