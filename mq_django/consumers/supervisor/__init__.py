"""The process that starts and watches consumers, and runs the background services of their queues."""
