"""Digests of options, by which processes notice that they run with different settings without showing these."""

from dataclasses import fields
from hashlib import sha256

from mq_django.core.options import options_of
from mq_django.core.queue_configs import QueueConfig
from mq_django.core.topic_configs import TopicConfig

#: Options that need no digest: processes with another one are not on the same keys, or announce the value itself.
_LEFT_OUT = frozenset({"CONNECTION", "NAMESPACE", "STORE", "VISIBILITY_TIMEOUT", "VT"})


def option_digests(*configs: QueueConfig | TopicConfig) -> dict[str, str]:
    """Return a digest of each option that is not the default, by its name."""
    found = {}
    for config in configs:
        defaults = {field.name: field.default for field in fields(config)}
        for name, option in options_of(type(config)).items():
            value = getattr(config, option.attribute)
            if name not in _LEFT_OUT and value != defaults[option.attribute]:
                found[name] = sha256(repr(value).encode()).hexdigest()[:8]
    return found
