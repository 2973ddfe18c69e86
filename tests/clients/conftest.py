"""Projects that use packages whose tasks run on our queues."""

collect_ignore = ["wagtail_project"]
