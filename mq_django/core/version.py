"""The version of mq_django, for use inside the package. A test checks that `mq_django.__version__` is the same."""

VERSION = "0.1.0"
