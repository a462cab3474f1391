"""Deletion on the controller: of what a folder holds by a name, a link as a link; no other module deletes anything.

The folder is opened once, without following a link that others could have put on the way (`node.root_files`), and all
is deleted by its descriptor. So nothing outside of it goes, whoever owns the folders above.
"""

from contextlib import suppress
from pathlib import Path

from tokenpeak.node.machine.root_files import open_folder


def delete(path: Path) -> None:
    """Delete a file, a link, or a folder with all in it; nothing where there is none. Raises OSError."""
    with suppress(FileNotFoundError), open_folder(path.parent) as folder:
        folder.remove_tree(path.name)


def delete_if_possible(path: Path) -> None:
    """Delete it as far as that can be done: what is left does no harm."""
    with suppress(OSError):
        delete(path)
