"""Names of files that come out of sandboxes, as they may be used on the host."""

from __future__ import annotations

import re

_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""Characters that terminals and file managers act on or hide: controls, and changes of the direction of writing."""


def escape_file_name(name: str) -> str:
    """Percent-escape characters of a name that would be obeyed instead of shown."""
    return _OBEYED.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), name)
