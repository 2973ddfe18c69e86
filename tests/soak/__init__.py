"""The example project for hours, while consumers are killed: what its processes hold does not grow."""
