"""A consumer process: it fetches, runs and settles messages.

    fetchers -> dispatcher -> a slot -> a path                 -> settler
    from Redis  by handler    thread    may it run? call, judge   outcomes in batches,
                              or loop                             with the next fetch

`main` is the main thread, which handles what the supervisor asks for. `consumer.Consumer` builds the rest. A fetcher
takes only as many messages as its pool will start soon. A slot runs one handler after another: a thread (`pools`)
runs functions, a slot of an event loop (`loops`) runs coroutine functions. A `call_path.CallPath` has the steps of a
call, the same for functions and coroutine functions, for one message and for a batch; a `PlainPath` takes them faster
for functions with nothing around them. The dispatcher builds it once for each handler. `executor.Executor` has what
these paths need of their queue. `batches` collects the messages of handlers with `batch`, and a `BatchPath` says what
to call next when a call has failed.

`once_call` is called in the place of a handler with `@exactly_once`. The services in `progress` interrupt handlers past
their timeout and those that were cancelled, and save what handlers report. `dispatcher.Isolation` passes messages on
that must run alone, because one of them may have killed a process. `main` keeps the deliveries of this process while
its supervisor is dead.

Whatever a handler raises, returns or logs, its delivery gets one outcome, and its slot goes on.
"""
