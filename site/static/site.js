// What scripts add to pages that are whole without them: here tables that sort, filter and choose columns, and texts to
// copy; figures.js and factors.js have the rest. All state is in the address's fragment, as name=value pairs.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value != null) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  };

  // --- state in the fragment -------------------------------------------------------------------------------------
  const state = {
    read() {
      const text = location.hash.slice(1);
      return new URLSearchParams(text.includes("=") ? text : "");
    },
    get(name) { return this.read().get(name); },
    set(name, value) {
      const pairs = this.read();
      if (value) pairs.set(name, value); else pairs.delete(name);
      const text = pairs.toString();
      history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
    },
  };

  const value = (cell) => {
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    const text = cell.textContent.trim();
    return text === "–" ? null : text;
  };
  window.tokenpeak = { all, make, state, value };

  // --- tables ----------------------------------------------------------------------------------------------------
  const compare = (a, b, down) => {
    if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1; // what is missing stays last
    const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
    return down ? -order : order;
  };

  function table(section) {
    const name = section.dataset.name;
    const grid = section.querySelector("table");
    const tools = section.querySelector(".tools");
    if (!name || !grid || !tools || !grid.tBodies.length) return;
    // On a phone, what a row came to stands beside what it is of, by a column that only such tables have.
    const isPhone = matchMedia("(max-width: 640px)").matches;
    const first = {
      verdict: ["verdict", "output_tok_per_s", "slo", "level_label"],
      status: ["objective", "status", "label"],
      decision: ["value"],
      preset: ["output_tok_per_s"],
      energy_kwh_per_1m_output_tok: ["energy_j_per_output_tok"],
    };
    const kind = isPhone && Object.keys(first).find((key) => grid.querySelector(`th[data-key=${key}]`));
    for (const key of first[kind] || []) {
      const at = grid.querySelector(`th[data-key=${key}]`)?.cellIndex;
      if (at > 0) for (const row of grid.rows) row.cells[0].after(row.cells[at]);
    }
    const heads = all("thead th", grid);
    const rows = [...grid.tBodies[0].rows];
    const original = [...rows];

    const sort = (index, down) => {
      heads.forEach((head, i) => (i === index ? head.setAttribute("aria-sort", down ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
      const order = index < 0 ? original : [...original].sort((a, b) => compare(value(a.cells[index]), value(b.cells[index]), down));
      grid.tBodies[0].append(...order);
    };
    heads.forEach((head, index) => {
      const label = head.querySelector(".head") || head.firstChild;
      const button = make("button", { type: "button", title: "Sort" });
      label.replaceWith(button);
      button.append(label);
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const number = head.classList.contains("k-number");
        // Numbers begin with the largest; a third press gives the first order back.
        const next = now === null ? number : now === (number ? "descending" : "ascending") ? !number : null;
        if (next === null) { sort(-1); state.set(`${name}.sort`, ""); } else { sort(index, next); state.set(`${name}.sort`, `${next ? "-" : ""}${head.dataset.key || index}`); }
      });
    });

    const count = make("span", { class: "unit", role: "status" });
    const filter = make("input", { type: "search", placeholder: "Filter rows", "aria-label": `Filter rows of ${section.querySelector("h2,h3")?.firstChild.textContent.trim() || name}` });
    const apply = () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => (word.startsWith("-") && word.length > 1 ? !text.includes(word.slice(1)) : text.includes(word)));
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
    };
    filter.addEventListener("input", () => { apply(); state.set(`${name}.filter`, filter.value); });
    if (rows.length > 4) tools.prepend(count, filter);

    const keyed = heads.filter((head) => head.dataset.key);
    const show = (index, on) => {
      heads[index].toggleAttribute("data-off", !on);
      rows.forEach((row) => row.cells[index].toggleAttribute("data-off", !on));
    };
    // Rows are in the ranking's order; on a phone its number would stand in the figures' place.
    const ranked = isPhone && keyed.length > 5 ? "rank" : null;
    heads.forEach((head, index) => { if (head.hasAttribute("data-off") || head.dataset.key === ranked) show(index, false); });
    if (keyed.length > 5) {
      const usual = keyed.map((head) => !head.hasAttribute("data-off"));
      const boxes = keyed.map((head) => {
        const box = make("input", { type: "checkbox" });
        box.checked = !head.hasAttribute("data-off");
        box.addEventListener("change", () => {
          show(heads.indexOf(head), box.checked);
          const changed = boxes.map((each, i) => (each.checked === usual[i] ? "" : `${each.checked ? "" : "-"}${keyed[i].dataset.key}`)).filter(Boolean);
          state.set(`${name}.columns`, changed.join(","));
        });
        return box;
      });
      const menu = make("details", { class: "columns-menu" }, make("summary", {}, "Columns"),
        make("div", {}, ...keyed.map((head, i) => make("label", {}, boxes[i], ` ${head.textContent.replace(/\s+/g, " ").trim()}`))));
      tools.append(menu);
      document.addEventListener("click", (event) => { if (!menu.contains(event.target)) menu.open = false; });
      menu.addEventListener("keydown", (event) => { if (event.key === "Escape") { menu.open = false; menu.firstChild.focus(); } });
      for (const word of (state.get(`${name}.columns`) || "").split(",").filter(Boolean)) {
        const index = keyed.findIndex((head) => head.dataset.key === word.replace(/^-/, ""));
        if (index >= 0) { boxes[index].checked = !word.startsWith("-"); show(heads.indexOf(keyed[index]), boxes[index].checked); }
      }
    }
    const sorted = state.get(`${name}.sort`);
    if (sorted) {
      const index = heads.findIndex((head, i) => (head.dataset.key || String(i)) === sorted.replace(/^-/, ""));
      if (index >= 0) sort(index, sorted.startsWith("-"));
    }
    const filtered = state.get(`${name}.filter`);
    if (filtered) { filter.value = filtered; apply(); }
  }

  // --- texts to copy ---------------------------------------------------------------------------------------------
  function snippets(section) {
    const parts = all(".snippet", section);
    if (!parts.length) return;
    const bar = make("div", { class: "tabs" });
    const list = make("div", { class: "tabs", role: "tablist", "aria-label": "Forms of the command" });
    const select = (index, focus) => parts.forEach((part, i) => {
      part.hidden = i !== index;
      tabs[i].setAttribute("aria-selected", String(i === index));
      tabs[i].tabIndex = i === index ? 0 : -1;
      if (i === index && focus) tabs[i].focus();
    });
    const tabs = parts.map((part, index) => {
      const id = `${section.dataset.name}-${index}`;
      part.id = id;
      part.setAttribute("role", "tabpanel");
      part.setAttribute("aria-label", part.dataset.title);
      const tab = make("button", { type: "button", role: "tab", "aria-controls": id, onclick: () => { select(index); state.set(section.dataset.name, index ? String(index) : ""); } }, part.dataset.title);
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (step) select((index + step + parts.length) % parts.length, true);
      });
      return tab;
    });
    list.append(...tabs);
    const copy = make("button", { type: "button", class: "copy", onclick: async () => {
      const shown = parts.find((part) => !part.hidden).querySelector("code");
      try { await navigator.clipboard.writeText(shown.textContent); } catch {
        const range = document.createRange(); range.selectNodeContents(shown);
        const selection = getSelection(); selection.removeAllRanges(); selection.addRange(range);
        document.execCommand("copy");
      }
      copy.textContent = "Copied";
      copy.addEventListener("blur", () => { copy.textContent = "Copy"; }, { once: true });
    } }, "Copy");
    bar.append(list, copy);
    section.prepend(bar);
    section.classList.add("tabbed");
    select(Math.min(Number(state.get(section.dataset.name) || 0), parts.length - 1));
  }

  // After the other scripts, which know rows by their first order.
  document.addEventListener("DOMContentLoaded", () => {
    all("section.table").forEach(table);
    all(".snippets").forEach(snippets);
  });
})();
