"""Presets: data that describes how to start an agent and parse its output."""

from __future__ import annotations

from paddock.runs.presets.agent_launch import (
    SCRIPT_PRESET,
    LaunchPlan,
    ServiceAddresses,
    UnsupportedTaskError,
    check_task_fits,
    render_launch_plan,
    requested_model,
)
from paddock.runs.presets.preset import Preset
from paddock.runs.presets.preset_loader import PresetLibrary
from paddock.runs.presets.preset_output_reader import ParsedAgentEvent, PresetOutputReader, make_output_reader

__all__ = [
    "SCRIPT_PRESET",
    "LaunchPlan",
    "ParsedAgentEvent",
    "Preset",
    "PresetLibrary",
    "PresetOutputReader",
    "ServiceAddresses",
    "UnsupportedTaskError",
    "check_task_fits",
    "make_output_reader",
    "render_launch_plan",
    "requested_model",
]
