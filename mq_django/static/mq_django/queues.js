"use strict";
// Live updates, and the checkboxes of a list. Pages also work without JavaScript, but do not update.
{
    const FIRST = 3000;
    const LONGEST = 60000;

    /** Replace the HTML of a part of the page, unless text in it is selected. Keep the focus inside it. */
    const show = (part, html) => {
        const selection = document.getSelection();
        if (part.dataset.mqShown === html || (!selection.isCollapsed && selection.containsNode(part, true))) {
            return;
        }
        // Links are identified by their URLs, buttons by their ids.
        const {activeElement} = document;
        const within = part.contains(activeElement);
        const href = within ? activeElement.getAttribute("href") : null;
        const id = within ? activeElement.id : "";
        part.innerHTML = html;
        part.dataset.mqShown = html;
        if (href !== null || id) {
            const selector = href === null ? `#${CSS.escape(id)}` : `[href="${CSS.escape(href)}"]`;
            part.querySelector(selector)?.focus({preventScroll: true});
        }
    };

    const watch = root => {
        const data = root.dataset;
        const controls = root.querySelector(".mq-controls");
        const note = root.querySelector("[data-mq-note]");
        const toggle = root.querySelector("[data-mq-toggle]");
        const summary = root.querySelector("[data-mq-summary]");
        let wait = FIRST;
        let timer = null;
        let paused = false;

        const plan = () => {
            clearTimeout(timer);
            timer = paused || document.hidden ? null : setTimeout(refresh, wait);
        };

        const refresh = async () => {
            try {
                const response = await fetch(data.mqLive, {
                    credentials: "same-origin",
                    redirect: "manual",
                    signal: AbortSignal.timeout(10000),
                });
                if (response.type === "opaqueredirect" || response.status === 403) {
                    note.textContent = data.mqOut;
                    return;
                }
                const result = await response.json();
                for (const [name, html] of Object.entries(result.parts ?? {})) {
                    const part = root.querySelector(`[data-mq-part="${name}"]`);
                    if (part) {
                        show(part, html);
                    }
                }
                // Screen readers announce each change of a live region, so it is only written when the text differs.
                if (result.summary && summary.textContent !== result.summary) {
                    summary.textContent = result.summary;
                }
                note.textContent = result.error ?? new Date().toLocaleTimeString();
                wait = response.ok ? FIRST : Math.min(wait * 2, LONGEST);
            } catch {
                note.textContent = data.mqLost;
                wait = Math.min(wait * 2, LONGEST);
            }
            plan();
        };

        toggle.addEventListener("click", () => {
            paused = !paused;
            toggle.textContent = paused ? data.mqResume : data.mqPause;
            note.textContent = paused ? data.mqPaused : "";
            wait = FIRST;
            if (paused) {
                plan();
            } else {
                refresh();
            }
        });
        document.addEventListener("visibilitychange", () => {
            if (!document.hidden && !paused) {
                wait = FIRST;
                refresh();
            } else {
                plan();
            }
        });
        controls.hidden = false;
        note.textContent = new Date().toLocaleTimeString();
        plan();
    };

    const countChosen = form => {
        const all = form.querySelector("[data-mq-all]");
        const counter = form.querySelector("[data-mq-chosen]");
        const boxes = [...form.querySelectorAll(".action-select")];
        if (!all || !counter) {
            return;
        }
        const count = () => {
            const chosen = boxes.filter(box => box.checked).length;
            all.checked = chosen === boxes.length;
            all.indeterminate = chosen > 0 && chosen < boxes.length;
            counter.textContent = `${chosen} / ${boxes.length}`;
        };
        all.addEventListener("change", () => {
            for (const box of boxes) {
                box.checked = all.checked;
            }
            count();
        });
        form.addEventListener("change", count);
        count();
    };

    for (const root of document.querySelectorAll("[data-mq-live]")) {
        watch(root);
    }
    for (const form of document.querySelectorAll("#changelist-form")) {
        countChosen(form);
    }
    // Entering a value selects its option.
    for (const field of document.querySelectorAll("[data-mq-picks]")) {
        field.addEventListener("input", () => {
            field.closest("form").querySelector(`[type="radio"][value="${field.dataset.mqPicks}"]`).checked = true;
        });
    }
}
