"""Kinds, tools, screenshots and input control of sandboxes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import AwareDatetime, Field

from paddock.config.network_policy import NetworkRules
from paddock.model.sandbox import KIND_EXTENSION, KIND_VARIABLE, FrozenModel, SandboxLimits

__all__ = [
    "KIND_EXTENSION",
    "KIND_VARIABLE",
    "InputControlHolder",
    "SandboxKind",
    "SandboxTool",
    "ScreenFrame",
    "Screenshot",
    "ToolResult",
    "ToolResultImage",
    "ToolResultText",
]


class SandboxKind(FrozenModel):
    """A kind of sandbox that agents can request."""

    name: str = Field(pattern=r"^[a-z][a-z0-9]{0,30}$")
    title: str
    """Display name, such as `Windows (Wine)`."""
    image: str
    description: str = ""
    """Purpose, written for agents."""
    screen: bool = False
    """Whether it has a display."""
    limits: SandboxLimits = SandboxLimits()
    network: NetworkRules | None = None
    """Network policy of requests that name none; `None` means `network.default`."""


class InputControlHolder(FrozenModel):
    """The person in control of mouse and keyboard; without one, the agent is."""

    viewer: str
    """Viewer id that the person's connections carry."""
    name: str
    since: AwareDatetime


class SandboxTool(FrozenModel):
    """A tool as the sandbox describes it."""

    name: str
    description: str = ""
    input_schema: Mapping[str, Any] = {}
    input: bool = False
    """Whether it uses mouse or keyboard, and so waits while a person is in control."""
    changes_screen: bool = False
    read_only: bool = False


class ToolResultText(FrozenModel):
    type: Literal["text"] = "text"
    text: str


class ToolResultImage(FrozenModel):
    type: Literal["image"] = "image"
    data: bytes
    mime: str


class ToolResult(FrozenModel):
    """Result of a tool call; failures have `failed` set."""

    content: tuple[ToolResultText | ToolResultImage, ...] = ()
    structured: Mapping[str, Any] | None = None
    failed: bool = False
    files: tuple[str, ...] = ()
    """Paths in the sandbox written by the call."""


class Screenshot(FrozenModel):
    """One picture of a screen, with an ETag for unchanged screens."""

    data: bytes
    mime: str
    etag: str
    width: int
    height: int


class ScreenFrame(FrozenModel):
    """A picture of a changed screen."""

    sequence: int
    width: int
    height: int
    at: float
    """Seconds since 1970 on the sandbox's clock."""
    data: bytes
    """JPEG."""
