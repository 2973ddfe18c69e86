"""Messages, options and outcomes as plain values, and functions on them. No module here connects to anything."""
