"""Presets: data that describes how to start an agent and parse its output."""

from __future__ import annotations

from paddock.runs.presets.launch_plan import (
    SCRIPT_PRESET,
    LaunchPlan,
    SandboxServiceAddresses,
    UnsupportedTaskError,
    check_agent_supports_task,
    render_launch_plan,
    requested_model_name,
)
from paddock.runs.presets.preset import AgentPreset
from paddock.runs.presets.preset_loader import PresetLibrary
from paddock.runs.presets.preset_output_reader import ParsedAgentEvent, PresetOutputReader, make_output_reader

__all__ = [
    "SCRIPT_PRESET",
    "AgentPreset",
    "LaunchPlan",
    "ParsedAgentEvent",
    "PresetLibrary",
    "PresetOutputReader",
    "SandboxServiceAddresses",
    "UnsupportedTaskError",
    "check_agent_supports_task",
    "make_output_reader",
    "render_launch_plan",
    "requested_model_name",
]
