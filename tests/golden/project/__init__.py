"""A project with a queue for each thing that a consumer does."""
