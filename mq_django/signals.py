"""Django signals that mq_django sends.

All carry `queue` (its name). The ones about deliveries are sent from the thread that runs the handler, and only when
somebody listens, so that they cost nothing otherwise.
"""

from django.dispatch import Signal

#: A message was accepted by Redis. Arguments: queue, message_id, name. What a receiver raises is logged by Django
#: and does not fail the publish, whose message is there.
message_published = Signal()

#: A handler is about to run. Arguments: queue, message.
handler_started = Signal()

#: A handler has ended. Arguments: queue, message, outcome, seconds.
handler_finished = Signal()

#: A delivery was settled by a consumer that no longer held it; nothing was changed. Arguments: queue, message_id.
delivery_stale = Signal()

#: A group of a topic is so far behind that it will lose messages to the retention. Arguments: queue (the topic), group,
#: share (of the retention), lag. Sent once a fall behind, by whichever supervisor saw it.
retention_alarm = Signal()
