"""The LangGraph engine, which runs deepagents."""

from paddock.agents.engines.langgraph.engine import LangGraphEngine

__all__ = ["LangGraphEngine"]
