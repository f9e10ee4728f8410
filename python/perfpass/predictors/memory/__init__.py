"""Memory in use: what allocators reserve, what a framework adds, what was recorded."""
