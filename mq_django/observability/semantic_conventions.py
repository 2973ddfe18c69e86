"""The names of spans, attributes and metrics: OpenTelemetry's conventions for messaging, and our own.

The conventions for messaging are in development. Only this module has their names.
"""

from typing import Final

#: The version of the conventions.
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"

# Attributes of the conventions.
SYSTEM: Final = "messaging.system"
DESTINATION_NAME: Final = "messaging.destination.name"
CONSUMER_GROUP_NAME: Final = "messaging.consumer.group.name"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
MESSAGE_ID: Final = "messaging.message.id"
CONVERSATION_ID: Final = "messaging.message.conversation_id"
BATCH_MESSAGE_COUNT: Final = "messaging.batch.message_count"
ERROR_TYPE: Final = "error.type"

# Their values.
MQ_DJANGO: Final = "mq_django"
PUBLISH, SEND = "publish", "send"
PROCESS: Final = "process"

# Metrics of the conventions.
SENT_MESSAGES: Final = "messaging.client.sent.messages"
OPERATION_DURATION: Final = "messaging.client.operation.duration"
CONSUMED_MESSAGES: Final = "messaging.client.consumed.messages"
PROCESS_DURATION: Final = "messaging.process.duration"
#: Units.
MESSAGES, SECONDS = "{message}", "s"
#: The boundaries of the histograms, in seconds.
DURATION_BOUNDARIES: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)

#: The most links of a span, as SDKs keep them by default.
MAX_LINKS: Final = 128

# Our own attributes and events.
MESSAGE_TYPE: Final = "mq_django.message.type"
HANDLER: Final = "mq_django.handler"
ATTEMPT: Final = "mq_django.attempt"
RETRY_EVENT: Final = "mq_django.retry"
RETRY_DELAY: Final = "mq_django.retry.delay"
BURY_EVENT: Final = "mq_django.bury"
BURY_REASON: Final = "mq_django.bury.reason"
#: Values of `error.type` without an exception: the handler returned this outcome.
RETRY_RETURNED, BURY_RETURNED = "mq_django.Retry", "mq_django.Bury"
