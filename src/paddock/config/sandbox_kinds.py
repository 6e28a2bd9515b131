"""Settings of sandbox kinds: overrides of the built-in kinds, and new kinds."""

from __future__ import annotations

from paddock.config.network_policy import NetworkRules
from paddock.config.sandbox_limits import SandboxLimitsConfig
from paddock.config.section import ConfigSection


class SandboxKindConfig(ConfigSection):
    """A kind of sandbox that requests can name. Omitted values of a built-in kind keep their defaults."""

    title: str | None = None
    """Display name, such as `Linux (LXDE)`; defaults to the name of the kind."""
    image: str | None = None
    """Image of the sandboxes; required for a new kind."""
    description: str | None = None
    """What the kind is suited for; shown to agents."""
    screen: bool | None = None
    """Whether the sandboxes have a desktop that can be viewed and controlled."""
    limits: SandboxLimitsConfig = SandboxLimitsConfig()
    """Resource limits used when a request does not set them."""
    network: NetworkRules | None = None
    """Network policy used when a request does not set one, in any form of `network.default`; `null` keeps the kind's
    own policy, or else uses `network.default`. The kinds `browser` and `mobile` have `allow web`."""
