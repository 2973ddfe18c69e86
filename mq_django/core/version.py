"""The version of mq_django, for those inside who say it; a test holds it equal to `mq_django.__version__`."""

VERSION = "0.1.0"
