"""Shared by all pages: permissions, tabs, charts, filters, confirmations and text.

A page is a function that gets a `page.Page` and what the URL names, and returns a response:

    URL -> page.answer() -> page.needs(): permissions -> the page -> page.render(), or live parts for a poll

`page.answer()` turns errors of Redis into a page that says what to do, and limits the time that all reads of a page
may take together. `live` sends only those parts of a page that the browser does not show yet.

`text` formats values: data of messages is escaped, and characters that hide or reorder text become visible. `charts`
draws SVG without styles or scripts, so that a strict content security policy allows it. `page.confirm()` asks before
an action, and `page.report()` says afterwards what it has done. `filter_form` reads the filter of a request, and keeps
data of messages out of URLs, forms and logs, because users without permission to see data see those.

No module here knows a page.
"""
