"""What `runconsumer` runs: a supervisor, and consumers that it owns."""
