"""MCP: tools, resources and prompts of servers that use the Model Context Protocol, through the official SDK.

`servers` manages the servers and their tools, `connection` is one connection (`stdio` or HTTP, with `oauth`),
`questions` handles requests of servers, `content` converts responses to blocks. `serve` is the other direction: Loom as
a server.
"""

from loom.tools.mcp.servers import McpServers, ServerStatus
from loom.tools.mcp.tools import McpTool

__all__ = ["McpServers", "McpTool", "ServerStatus"]
