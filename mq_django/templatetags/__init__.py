"""The library of template tags of mq_django, for the pages of a project.

    {% load mq_django %}
    {% message_stream "/answers/7d3f" %}

Django finds it, because the app is in INSTALLED_APPS. The tag writes an element and a script:

    the tag -> <div data-mq-stream="/answers/7d3f"> -> static/mq_django/stream.js -> EventSource
                                                                                          |
    a handler -> stream() -> Redis -> read_stream() -> mq_django.views.message_stream <---'

The script puts text into the element, and dispatches an event of the DOM for each chunk. It is a file of its own, so
that a Content-Security-Policy may forbid all others. The permission is that of the view: the tag asks nobody, and the
id in the URL is no secret.

Pages of the admin do not use this library: they have their own in `mq_django.admin.ui`.
"""
