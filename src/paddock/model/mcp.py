"""Declarations of MCP servers. They are part of the configuration too, where they are defined."""

from paddock.config.mcp_servers import (
    McpAccess,
    McpKind,
    McpLimits,
    McpOAuth,
    McpSection,
    McpServer,
    McpSet,
    McpTimeouts,
    McpToolLimits,
    McpToolRules,
    TaskMcpServer,
)

__all__ = [
    "McpAccess",
    "McpKind",
    "McpLimits",
    "McpOAuth",
    "McpSection",
    "McpServer",
    "McpSet",
    "McpTimeouts",
    "McpToolLimits",
    "McpToolRules",
    "TaskMcpServer",
]
