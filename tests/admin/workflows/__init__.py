"""Tests of the pages of runs of workflows."""
