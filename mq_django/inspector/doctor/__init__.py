"""What is wrong with a project's servers, settings, consumers and code, and what to do about it.

Each look is a function that reads the facts of one area and yields findings. `looks` lists all of them, `report` runs
them. Nothing here writes to Redis.
"""
