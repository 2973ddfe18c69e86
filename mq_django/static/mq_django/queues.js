"use strict";
// Live updates, and the checkboxes of a list. Pages also work without JavaScript, but do not update.
{
    const FIRST = 3000;
    const LONGEST = 60000;
    /** At least this many times the duration of a poll pass until the next one, so that many tabs do not overload a process. */
    const PAUSE = 5;
    const LONGEST_HAVE = 6000;
    /** After so many messages a search asks whether to go on. */
    const ENOUGH = 200;

    /** Change a part of the page, unless text in it is selected. Keep the focus inside it. Return whether it was done. */
    const change = (part, apply) => {
        const selection = document.getSelection();
        if (!selection.isCollapsed && selection.containsNode(part, true)) {
            return false;
        }
        // Links are identified by their URLs, buttons by their ids.
        const {activeElement} = document;
        const within = part.contains(activeElement);
        const href = within ? activeElement.getAttribute("href") : null;
        const id = within ? activeElement.id : "";
        apply();
        if ((href !== null || id) && !activeElement.isConnected) {
            const selector = href === null ? `#${CSS.escape(id)}` : `[href="${CSS.escape(href)}"]`;
            part.querySelector(selector)?.focus({preventScroll: true});
        }
        return true;
    };

    /** Replace the rows of a part that have changed, by their index. */
    const replaceRows = (part, rows) => {
        const shown = [...part.children];
        for (const [index, html] of Object.entries(rows)) {
            const template = document.createElement("template");
            template.innerHTML = html;
            shown[index]?.replaceWith(template.content);
        }
    };

    /** Write the heads of the columns into the cells of the tables, which are shown as cards on a phone. */
    const labelCells = root => {
        for (const table of root.querySelectorAll(".mq-table:has(thead)")) {
            const labels = [...table.tHead.rows[0].cells].map(head => head.textContent.trim());
            for (const row of table.tBodies[0].rows) {
                let column = 0;
                for (const cell of row.cells) {
                    // A cell over several columns is a sentence.
                    if (cell.colSpan === 1 && labels[column]) {
                        cell.dataset.label = labels[column];
                    }
                    column += cell.colSpan;
                }
            }
            table.classList.add("mq-cards");
        }
    };

    /** Show what an answer has for the parts of the page, and note the versions that are shown now. */
    const show = (root, result) => {
        const {parts = {}, rows = {}, have = {}} = result;
        for (const part of root.querySelectorAll("[data-mq-part]")) {
            const name = part.dataset.mqPart;
            const done = name in parts
                ? change(part, () => { part.innerHTML = parts[name]; })
                : name in rows && change(part, () => replaceRows(part, rows[name]));
            if (done) {
                part.dataset.mqHave = have[name] ?? "";
            }
        }
        labelCells(root);
    };

    /** Return the versions of the parts that are shown; longer ones than servers accept in a header are left out. */
    const versions = root => {
        const have = {};
        let length = 0;
        for (const {dataset} of root.querySelectorAll("[data-mq-have]")) {
            length += dataset.mqHave.length;
            if (length < LONGEST_HAVE) {
                have[dataset.mqPart] = dataset.mqHave;
            }
        }
        return JSON.stringify(have);
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
            const began = performance.now();
            try {
                const response = await fetch(data.mqLive, {
                    credentials: "same-origin",
                    headers: {"X-MQ-Have": versions(root)},
                    redirect: "manual",
                    signal: AbortSignal.timeout(10000),
                });
                if (response.type === "opaqueredirect" || response.status === 403) {
                    note.textContent = data.mqOut;
                    root.classList.add("mq-stale");
                    return;
                }
                const result = await response.json();
                show(root, result);
                // Screen readers announce each change of a live region, so it is only written when the text differs.
                if (result.summary && summary.textContent !== result.summary) {
                    summary.textContent = result.summary;
                }
                note.textContent = result.error ?? result.at;
                wait = response.ok ? FIRST : Math.min(wait * 2, LONGEST);
                root.classList.toggle("mq-stale", !response.ok);
            } catch {
                note.textContent = data.mqLost;
                wait = Math.min(wait * 2, LONGEST);
                root.classList.add("mq-stale");
            }
            wait = Math.min(Math.max(wait, (performance.now() - began) * PAUSE), LONGEST);
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
        plan();
    };

    /** Reload a page that could not be shown, when it can be. */
    const retry = note => {
        let wait = FIRST;
        const again = async () => {
            if (!document.hidden) {
                try {
                    const response = await fetch(location.href, {credentials: "same-origin", redirect: "manual"});
                    if (response.ok || response.type === "opaqueredirect") {
                        location.reload();
                        return;
                    }
                } catch {
                    // The server cannot be reached either.
                }
                wait = Math.min(wait * 2, LONGEST);
            }
            setTimeout(again, wait);
        };
        note.hidden = false;
        setTimeout(again, wait);
    };

    const countChosen = form => {
        const all = form.querySelector("[data-mq-all]");
        const counter = form.querySelector("[data-mq-chosen]");
        if (!all || !counter) {
            return;
        }
        const count = () => {
            // A search adds some.
            const boxes = [...form.querySelectorAll(".action-select")];
            const chosen = boxes.filter(box => box.checked).length;
            all.checked = chosen === boxes.length;
            all.indeterminate = chosen > 0 && chosen < boxes.length;
            counter.textContent = `${chosen} / ${boxes.length}`;
        };
        all.addEventListener("change", () => {
            for (const box of form.querySelectorAll(".action-select")) {
                box.checked = all.checked;
            }
            count();
        });
        form.addEventListener("change", count);
        count();
    };

    /** Move through rows, select them and open pages by keys. Links, boxes and buttons do the same. */
    const useKeys = (root, keys) => {
        const hint = root.querySelector("[data-mq-keys]");
        let isGoing = false;

        const rows = () => [...root.querySelectorAll(".mq-table:not(.mq-facts) tbody tr")].filter(
            row => row.offsetParent && row.querySelector("a[href]"),
        );
        const here = () => document.activeElement.closest("tr");
        const step = by => {
            const found = rows();
            const at = found.indexOf(here());
            const row = found[at < 0 ? 0 : at + by];
            row?.querySelector("a[href]").focus();
            row?.scrollIntoView({block: "nearest"});
        };
        const actions = {
            "/": () => document.querySelector("#mq-search, #mq-find, #content-main [type=search]")?.focus(),
            j: () => step(1),
            k: () => step(-1),
            x: () => here()?.querySelector("[type=checkbox]")?.click(),
            "?": () => keys.showModal(),
        };
        hint.addEventListener("click", () => keys.showModal());
        hint.parentElement.hidden = false;
        document.addEventListener("keydown", event => {
            const {key, target} = event;
            // A box takes no text.
            const writes = target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]");
            if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || writes || keys.open) {
                return;
            }
            const link = isGoing ? keys.querySelector(`[data-mq-go="${CSS.escape(key)}"]`) : null;
            isGoing = !isGoing && key === "g";
            const action = link ? () => link.click() : Object.hasOwn(actions, key) ? actions[key] : null;
            if (action) {
                event.preventDefault();
                action();
            }
        });
    };

    /** Say the figures of the step of a chart under the pointer, and zoom into the steps over which it is dragged. */
    const exploreCharts = () => {
        let began = null;
        const stepAt = (svg, event) => {
            const {left, width} = svg.getBoundingClientRect();
            const count = svg.viewBox.baseVal.width / 10;
            return Math.max(0, Math.min(count - 1, Math.floor((event.clientX - left) / width * count)));
        };
        const say = (svg, step) => {
            const frame = svg.closest(".mq-chart");
            let said = frame.querySelector(".mq-exact");
            if (!said) {
                said = document.createElement("output");
                said.className = "mq-exact";
                frame.append(said);
            }
            said.textContent = svg.querySelector(`g:has(> .mq-column[x="${step * 10}"]) title`)?.textContent ?? "";
        };
        const select = (svg, step) => {
            const [from, to] = [Math.min(began.step, step), Math.max(began.step, step)];
            began.area.setAttribute("x", from * 10);
            began.area.setAttribute("width", (to - from + 1) * 10);
            return [from, to + 1];
        };
        document.addEventListener("pointermove", event => {
            const svg = began?.svg ?? event.target.closest?.(".mq-hour");
            if (svg) {
                const step = stepAt(svg, event);
                say(svg, step);
                if (began) {
                    select(svg, step);
                }
            }
        });
        document.addEventListener("pointerdown", event => {
            const svg = event.target.closest?.(".mq-hour");
            if (!svg) {
                return;
            }
            say(svg, stepAt(svg, event));
            if (svg.closest("[data-mq-zoom]") && event.isPrimary && event.button === 0) {
                const area = document.createElementNS("http://www.w3.org/2000/svg", "rect");
                area.setAttribute("class", "mq-area");
                area.setAttribute("height", "100");
                svg.append(area);
                began = {svg, area, step: stepAt(svg, event)};
                select(svg, began.step);
                event.preventDefault();
            }
        });
        const end = event => {
            if (!began) {
                return;
            }
            const {svg, area, step} = began;
            const [from, to] = select(svg, stepAt(svg, event));
            area.remove();
            const dragged = event.type === "pointerup" && stepAt(svg, event) !== step;
            began = null;
            if (dragged) {
                const [since, length] = [Number(svg.dataset.mqSince), Number(svg.dataset.mqStep)];
                const query = new URLSearchParams(svg.closest("[data-mq-zoom]").dataset.mqZoom);
                query.set("from", since + from * length);
                query.set("to", since + to * length);
                location.search = query;
            }
        };
        document.addEventListener("pointerup", end);
        document.addEventListener("pointercancel", end);
    };

    /** Add what a step of a search has found: the rows of a list that is shown below the ones before. */
    const addFound = (shown, html) => {
        const template = document.createElement("template");
        template.innerHTML = html;
        for (const group of template.content.querySelectorAll("[data-mq-group]")) {
            const before = shown.querySelector(`[data-mq-group="${CSS.escape(group.dataset.mqGroup)}"]`);
            if (before) {
                before.querySelector("tbody")?.append(...group.querySelectorAll("tbody > tr"));
                before.dispatchEvent(new Event("change"));
            } else {
                shown.append(group);
                countChosen(group);
            }
        }
        labelCells(shown);
    };

    /** Search step by step while the page is seen: at most half of the time, and until there is enough to look at. */
    const search = root => {
        const data = root.dataset;
        const toggle = root.querySelector("[data-mq-toggle-search]");
        const cancel = root.querySelector("[data-mq-cancel-search]");
        const note = root.querySelector("[data-mq-search-note]");
        const link = root.querySelector("[data-mq-go-on]");
        const shown = root.querySelector("[data-mq-found]");
        let next = data.mqSearch;
        let stopper = null;
        let timer = null;
        let running = true;
        let most = ENOUGH;

        const pause = text => {
            running = false;
            clearTimeout(timer);
            toggle.textContent = data.mqResume;
            note.textContent = text;
        };
        const end = () => {
            running = false;
            clearTimeout(timer);
            stopper?.abort();
            toggle.hidden = cancel.hidden = true;
        };
        const go = async () => {
            const began = performance.now();
            stopper = new AbortController();
            try {
                const response = await fetch(next, {
                    credentials: "same-origin",
                    redirect: "manual",
                    signal: AbortSignal.any([stopper.signal, AbortSignal.timeout(10000)]),
                });
                if (response.type === "opaqueredirect" || response.status === 403) {
                    end();
                    note.textContent = data.mqOut;
                    return;
                }
                const result = await response.json();
                if (!response.ok) {
                    pause(result.error);
                    return;
                }
                addFound(shown, result.parts.found);
                root.querySelector("[data-mq-said]").textContent = result.said;
                next = result.next_url;
                link.hidden = !next;
                link.href = result.go_on_url;
                if (result.count === "0") {
                    // Until there is something that a reload would not show again, the address goes on, too.
                    history.replaceState(null, "", result.go_on_url || location.href);
                }
                if (!next) {
                    end();
                } else if (Number(result.count) >= most && running) {
                    most = Number(result.count) + ENOUGH;
                    pause(data.mqFull);
                }
            } catch {
                if (running) {
                    pause(data.mqLost);
                }
                return;
            }
            if (running && !document.hidden) {
                timer = setTimeout(go, Math.max(100, performance.now() - began));
            }
        };
        toggle.addEventListener("click", () => {
            if (running) {
                stopper?.abort();
                pause("");
            } else {
                running = true;
                toggle.textContent = data.mqPause;
                note.textContent = "";
                go();
            }
        });
        cancel.addEventListener("click", end);
        document.addEventListener("visibilitychange", () => {
            clearTimeout(timer);
            if (running && !document.hidden) {
                go();
            }
        });
        toggle.hidden = cancel.hidden = false;
        go();
    };

    labelCells(document);
    const keys = document.querySelector("#mq-keys");
    if (keys) {
        useKeys(document.querySelector("#content-main"), keys);
    }
    exploreCharts();
    for (const root of document.querySelectorAll("[data-mq-search]:has([data-mq-go-on])")) {
        search(root);
    }
    for (const root of document.querySelectorAll("[data-mq-live]")) {
        watch(root);
    }
    for (const note of document.querySelectorAll("[data-mq-retry]")) {
        retry(note);
    }
    for (const form of document.querySelectorAll("#changelist-form, .mq-found")) {
        countChosen(form);
    }
    for (const button of document.querySelectorAll("[data-mq-copy]")) {
        button.hidden = !navigator.clipboard;
        button.addEventListener("click", async () => {
            await navigator.clipboard.writeText(button.closest("p").nextElementSibling.textContent);
            button.classList.add("mq-copied");
        });
    }
    // Entering a value selects its option.
    for (const field of document.querySelectorAll("[data-mq-picks]")) {
        field.addEventListener("input", () => {
            field.closest("form").querySelector(`[type="radio"][value="${field.dataset.mqPicks}"]`).checked = true;
        });
    }
}
