"""The wire: connections, servers, scripts."""
