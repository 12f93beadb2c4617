"""MCP: tools, resources and prompts of servers that speak the Model Context Protocol, through the official SDK.

`servers` keeps the servers and their tools, `connection` holds one connection (`stdio` or HTTP, with `oauth`),
`questions` answers what servers ask, `content` turns answers into blocks. `serve` is the other direction.
"""

from loom.tools.mcp.servers import McpServers, ServerStatus
from loom.tools.mcp.tools import McpTool

__all__ = ["McpServers", "McpTool", "ServerStatus"]
