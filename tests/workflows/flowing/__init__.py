"""Tasks that are steps of workflows."""
