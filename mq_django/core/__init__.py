"""Messages, options and outcomes as plain values, and functions on them. No module here imports Django or redis-py."""
