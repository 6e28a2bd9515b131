"""The AgentScope engine and its message conversion."""

from paddock.agents.engines.agentscope.engine import AgentScopeEngine

__all__ = ["AgentScopeEngine"]
