"""The pages of topics and their groups."""
