/* Shows the text of a stream in each element with data-mq-stream, the URL of the view message_stream. Each chunk is
   also dispatched to the element, as the detail of an event "mq-chunk". */
"use strict";
for (const box of document.querySelectorAll("[data-mq-stream]:not([data-mq-last])")) {
  box.dataset.mqLast = "";
  let refused = 0;
  const open = () => {
    const url = new URL(box.dataset.mqStream, location.href);
    if (box.dataset.mqLast) url.searchParams.set("after", box.dataset.mqLast);
    const source = new EventSource(url);
    for (const kind of ["text", "bytes", "json", "log", "restart", "end"])
      source.addEventListener(kind, (event) => {
        box.dataset.mqLast = event.lastEventId;
        refused = 0;
        const chunk = { id: event.lastEventId, kind, ...JSON.parse(event.data) };
        if (kind === "text") box.append(chunk.text);
        if (kind === "restart") box.textContent = "";
        if (kind === "end") source.close();
        box.dispatchEvent(new CustomEvent("mq-chunk", { bubbles: true, detail: chunk }));
      });
    // The browser itself connects again when a response ends, but not when it is refused, as with too many readers.
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED && refused++ < 5) setTimeout(open, 5000);
    });
  };
  open();
}
