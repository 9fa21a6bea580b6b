"""A server of the MCP SDK with one typed tool that answers with a fixed text.

Usage: mcp_answerer.py TEXT_BYTES
"""

import logging
import sys

from mcp.server.mcpserver import MCPServer
from texts import text_of


def main() -> None:
    text = text_of(int(sys.argv[1]))
    server = MCPServer("benchmark")

    # Without a structured result: the text would otherwise be sent twice.
    @server.tool(structured_output=False)
    def read_file(path: str) -> str:
        """The text of one file."""
        return text

    logging.disable(logging.CRITICAL)
    server.run()


if __name__ == "__main__":
    main()
