"""How agents are started, and how what they write is understood: presets, which are data."""

from __future__ import annotations

from paddock.runs.presets.loading import Presets
from paddock.runs.presets.preset import Preset
from paddock.runs.presets.reading import AgentEvent, OutputReader, reader
from paddock.runs.presets.render import PLAIN, Endpoints, Rendered, Unfit, check_fit, render, wanted_model

__all__ = [
    "PLAIN",
    "AgentEvent",
    "Endpoints",
    "OutputReader",
    "Preset",
    "Presets",
    "Rendered",
    "Unfit",
    "check_fit",
    "reader",
    "render",
    "wanted_model",
]
