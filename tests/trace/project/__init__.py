"""A project with two queues, whose handlers do nothing or fail."""
