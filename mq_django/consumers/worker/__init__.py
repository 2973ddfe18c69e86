"""A consumer process: it fetches, runs and settles messages.

    fetchers -> dispatcher -> admission -> a lane -> executor -> settler
    from Redis  by handler    may it run?   thread    call and    outcomes in batches,
                                            or loop   judge       with the next fetch

`main` is the main thread, which handles what the supervisor asks for. `consumer.Consumer` builds the rest. A fetcher
takes only as many messages as its pool will start soon. A lane runs one handler after another: a thread (`pools`)
runs functions, a place of an event loop (`loops`) runs coroutine functions. `executor.Executor` runs a delivery and
returns its outcome. `batches` collects the messages of handlers with `batch`, and `batch_calls` calls these.

`once_call` wraps the call of a handler with `@exactly_once`. `timekeeper` interrupts handlers past their timeout and
those that were cancelled. `isolation` passes messages on that must run alone, because one of them may have killed a
process. `orphan_heartbeat` keeps the deliveries of this process while its supervisor is dead.

Whatever a handler raises, returns or logs, its delivery gets one outcome, and its lane goes on.
"""
