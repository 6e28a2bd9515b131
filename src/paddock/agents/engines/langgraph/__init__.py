"""deepagents on LangGraph as an engine."""

from paddock.agents.engines.langgraph.engine import LangGraphEngine

__all__ = ["LangGraphEngine"]
