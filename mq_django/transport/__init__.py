"""The wire: servers, connections, capabilities, and the scripts that run in Redis."""
