"""The page of consumers."""
