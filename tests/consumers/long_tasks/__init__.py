"""Tasks that run until a file exists: an app for trees of processes."""
