"""The pages of ready, pending and waiting messages."""
