"""The pages of runs of workflows."""
