"""Tool servers that speak the Model Context Protocol, through its official SDK."""
