"""Messages, options and outcomes as plain values, and functions on them. Nothing here imports Django or Redis.

Everything that the other packages pass to each other is a value of this package, and most of them are frozen. What
comes from a caller is checked when the value is made; what comes from Redis is bounded when it is read.

    publication  ->  message_format  ->  messages
    what a caller    fields              a message, a delivery,
    publishes        in Redis            and what becomes of it

`publication.publication()` checks all arguments of a publish and returns a `Publication`. Only `message_format`
writes and reads the fields of entries (docs/protocol.md); `rsmq_format` does so for queues in RSMQ's format.
`messages` has the ends that a delivery can have, too: `Ack`, `Retry`, `Bury`, `HandBack`, `SetAside`, `Park`, `Expire`
and `Cancel`. `retries` computes the delay of a retry, and `breakers` says when messages wait instead, and which.

Options of the settings are fields of the configs in `queue_configs` and `project`; `options`
declares how a field is read, checked and documented. `keys` builds the names of all keys: no other module does.
`jsontext` reads the JSON and the numbers that Redis holds: any program may have written them.

`clock` is the only place that reads the time which messages carry. `texts.repr_of()` shows a value in an error, and
cannot fail. `redaction` replaces secrets before a person sees data.
"""
