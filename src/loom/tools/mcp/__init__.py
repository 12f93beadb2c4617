"""MCP: tools, resources and prompts of servers that use the Model Context Protocol, through the official SDK.

`servers` holds the configured servers, `tools` their tools, `connection` is one connection to a server (over `stdio` or
`http`, with `oauth`), `questions` handles requests of servers, `content` converts responses to blocks. `serve` is the
other direction: Loom as a server.
"""

from loom.tools.mcp.servers import McpServers
from loom.tools.mcp.tools import McpTool

__all__ = ["McpServers", "McpTool"]
