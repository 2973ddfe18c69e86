"""A content security policy without exceptions, on every version of Django."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse


def strict(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response["Content-Security-Policy"] = "default-src 'self'"
        return response

    return respond
