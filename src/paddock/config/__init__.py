"""Load the validated configuration from file, environment and flags."""

from paddock.config.loader import LoadedConfig, list_settings, load_config
from paddock.config.schema import Config

__all__ = ["Config", "LoadedConfig", "list_settings", "load_config"]
