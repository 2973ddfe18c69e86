"""Connections to Redis, local Redis servers, and Lua scripts."""
