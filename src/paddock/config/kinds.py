"""The settings of kinds: other images and limits for those there are, and kinds of one's own."""

from __future__ import annotations

from paddock.config.base import Section
from paddock.config.limits import LimitsConfig


class KindConfig(Section):
    """A sort of computer that sandboxes are asked for by name; what is left out is as the kind brings it."""

    title: str | None = None
    """What people read, such as `Linux (LXDE)`; a new kind has its name if this is left out."""
    image: str | None = None
    """Image its sandboxes start from; a new kind needs one."""
    description: str | None = None
    """What it is good for; agents read this."""
    screen: bool | None = None
    """Whether it has a display that can be watched and touched."""
    limits: LimitsConfig = LimitsConfig()
    """Limits of a sandbox that asks for none."""
