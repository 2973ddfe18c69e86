"""Integrations with monitoring software: each module is optional, and most need their own package.

    middleware for MQ_DJANGO["MIDDLEWARE"]    correlation, opentelemetry, sentry
    what Redis knows of queues and topics     queue_metrics, served by prometheus
    what processes measure of themselves      process_metrics, with --metrics-port
    signals of problems, samples, repairs     problem_watch, services of supervisors

Middleware runs around the call of a handler and around each publish, and must never change what becomes of a message:
whatever fails in here is logged, and the message goes on.

Consumers write their metrics into files of a private folder, and their supervisor serves the sums, so that a port
tells of all processes of a `runconsumer`, and of those that have ended (`process_metrics`).

`queue_metrics` and the names in `opentelemetry` are promises: dashboards are built on them.

Without the option or the setting that asks for it, no module here is imported, and no message pays for it.
"""
