"""mq_django as a contender: a project with one app."""
