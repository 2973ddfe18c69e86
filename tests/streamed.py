"""What the handler of a message has streamed, as it is in Redis."""

from mq_django.stores.message_streams import START, Page, read_after


def chunks_of(transport, config, message_id):
    """Return the chunks of a message's stream."""
    key, page, found = config.keys.message_stream(message_id), Page(last=START, is_all=False), []
    while not page.is_all:
        page = read_after(transport, [{key: page.last}])[key]
        found += page.chunks
    return found
