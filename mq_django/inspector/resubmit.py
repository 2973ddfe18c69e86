"""Put a dead letter back into its queue with changed data."""

from mq_django.core.jsontext import loads
from mq_django.core.messages import Delivery
from mq_django.core.publication import resubmission
from mq_django.core.redaction import restored
from mq_django.core.workflow_keys import STEP_PREFIX
from mq_django.inspector.one_queue import one_queue
from mq_django.stores.dead_letter_queue import buried, open_dead_letters
from mq_django.transport.connections import open_wire


def resubmit(name: str, entry: str, written: str) -> str | None:
    """Put a dead letter back into its queue with changed data, as a new message. Returns its id; None if it is gone.

    `written` is the JSON text of the new data. Placeholders that stand for secrets are replaced by these.

    Raises:
        DecodeError: it is not JSON.
        InvalidMessage: it is too long for the queue, or has a placeholder in a place without a secret.
        StoreError: cannot reach Redis.
    """
    config = one_queue(name)
    letters = open_dead_letters(config, open_wire("inspect", config.connection))
    found = next((buried(name, *letter) for letter in letters.whole([entry])), None)
    if not isinstance(found, Delivery):
        return None
    data = restored(loads(written.encode(errors="surrogatepass")), found.message.data)
    made = resubmission(config, found.message, data)
    if found.message.id.startswith(STEP_PREFIX):
        # Its run knows the step by this id.
        made = made._replace(message=made.message._replace(id=found.message.id))
    done = letters.resubmit(entry, message_id=made.message.id, text=letters.written(made))
    return made.message.id if done == "RESUBMITTED" else None
