"""`{% load mq_django %}`."""

from django import template
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()


@register.simple_tag
def message_stream(url: str) -> SafeString:
    """Write an element in which the text of a stream appears, and the script that reads it.

    Args:
        url: of the view `mq_django.views.message_stream`.
    """
    element = '<div class="mq-stream" data-mq-stream="{}" aria-live="polite"></div><script src="{}" defer></script>'
    return format_html(element, url, static("mq_django/stream.js"))
