"""Tools for the tests of a project."""
