"""The processes of `runconsumer`: a supervisor and its consumers."""
