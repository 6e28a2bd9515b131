"""Copy a tree with other owners: `python3 -I -S mapped_copy.py SOURCE TARGET USERS GROUPS ROOT`.

The source is read through an idmapped mount, so that `cp` keeps set-id bits and file capabilities, which chown removes.
Standard library only. Needs root.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    sys.path.append(sys.argv[5])  # Without the site module, only the standard library is found.

from paddock.sandbox.local.kernel_calls import apply_id_map, clone_mount, create_idmap_namespace


def copy_with_id_maps(source: str, target: str, users: str, groups: str) -> None:
    """Execute `cp`; the maps have lines of first id on disk, first id of the copy, and count."""
    directory = os.open(source, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    tree = clone_mount(directory, recursive=False)
    apply_id_map(tree, create_idmap_namespace(users, groups))
    os.set_inheritable(tree, True)
    words = ["cp", "-a", "--reflink=auto", "--no-target-directory", "--", f"/proc/self/fd/{tree}/.", target]
    os.execvp(words[0], words)


if __name__ == "__main__":
    try:
        copy_with_id_maps(*sys.argv[1:5])
    except OSError as error:
        sys.exit(str(error))
