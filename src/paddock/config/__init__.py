"""One validated configuration from file, environment and flags."""

from paddock.config.load import Loaded, describe, load
from paddock.config.schema import Config

__all__ = ["Config", "Loaded", "describe", "load"]
