// What scripts add to pages that are whole without them: figures that answer the pointer, tables that sort, filter and
// choose columns, texts to copy, factors to change. All state is in the address's fragment, as name=value pairs.
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
  window.tokenpeakState = state;

  // --- tables ----------------------------------------------------------------------------------------------------
  const value = (cell) => {
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    const text = cell.textContent.trim();
    return text === "–" ? null : text;
  };
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
    const filter = make("input", { type: "search", placeholder: "Filter rows", "aria-label": `Filter rows of ${section.querySelector("h2,h3")?.textContent || name}` });
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
    heads.forEach((head, index) => { if (head.hasAttribute("data-off")) show(index, false); });
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

  // --- figures ---------------------------------------------------------------------------------------------------
  const OPTIONS = { ast: true, logLevel: 1 /* errors */, renderer: "svg", actions: false, defaultStyle: false, tooltip: { disableDefaultStyle: true } };

  function upgrade(figure) {
    const holder = figure.querySelector(".chart");
    const fresh = make("div", { class: "embed" });
    const spec = JSON.parse(figure.querySelector("script.spec").textContent);
    // A narrow window gets fewer plots in a row and a narrower drawing, not a smaller one; labels keep their size.
    const wide = holder.querySelector(":scope > svg");
    const plot = spec.facet ? spec.spec : spec;
    const over = wide ? Number(wide.getAttribute("width")) - figure.clientWidth : 0;
    if (typeof plot.width === "number" && over > 0) {
      const [columns, each] = [spec.columns || 1, plot.width + 20 /* Vega-Lite's own spacing */];
      const room = figure.clientWidth - (Number(wide.getAttribute("width")) - columns * each + 20);
      if (spec.facet) spec.columns = Math.max(1, Math.floor((room + 20) / each));
      if ((spec.columns || 1) === 1) plot.width = Math.max(140, Math.min(plot.width, room - (spec.facet ? 4 : 24)));
      spec.config.legend.columns = 2;
      // A name that is wider than its plot stands over the labels on the left, where there is room.
      spec.config.header.labelAnchor = "end";
      if (figure.clientWidth < 480) spec.config.axis.labelFontSize = spec.config.header.labelFontSize = 10.5;
    }
    // Drawn unseen, then put in the place of the static picture: nothing on the page moves.
    fresh.hidden = true;
    holder.append(fresh);
    window.vegaEmbed(fresh, spec, OPTIONS).then(() => {
      holder.querySelector(":scope > svg")?.remove();
      fresh.hidden = false;
      // The holder is one picture with one description; its parts have none of their own.
      for (const part of all("[role],[aria-roledescription],[aria-label]", fresh)) for (const name of ["role", "aria-roledescription", "aria-label"]) part.removeAttribute(name);
    }).catch((error) => { fresh.remove(); console.error(`figure ${figure.dataset.name}: ${error.message}`); });
  }

  // The picture as a file of its own: variables resolved to this scheme's colours, title and facts written above and below.
  function standalone(figure) {
    const svg = figure.querySelector(".chart svg").cloneNode(true);
    const style = getComputedStyle(document.documentElement);
    const resolve = (text) => text.replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name).trim());
    const hatch = document.querySelector("#hatch");
    const width = Math.max(Number(svg.getAttribute("width")), 480);
    const height = Number(svg.getAttribute("height"));
    const space = "http://www.w3.org/2000/svg";
    const out = document.createElementNS(space, "svg");
    const lines = [figure.querySelector(".caption").textContent, ...figure.dataset.facts.split("  ·  ")];
    const small = [];
    for (const line of lines) {
      let row = "";
      for (const word of line.split(" ")) {
        if ((row + word).length * 5.6 > width - 24) { small.push(row); row = ""; }
        row += `${word} `;
      }
      small.push(row);
    }
    const total = height + 44 + small.length * 15 + 16;
    const set = (element, attributes, text) => { for (const [name, v] of Object.entries(attributes)) element.setAttribute(name, v); if (text) element.textContent = text; return element; };
    set(out, { xmlns: space, width, height: total, viewBox: `0 0 ${width} ${total}`, "font-family": "system-ui, sans-serif" });
    const defs = document.createElementNS(space, "defs");
    defs.append(hatch.cloneNode(true));
    const ink = style.getPropertyValue("--ink").trim();
    const quiet = style.getPropertyValue("--quiet").trim();
    out.append(defs, set(document.createElementNS(space, "rect"), { width, height: total, fill: style.getPropertyValue("--paper").trim() }));
    const mark = figure.dataset.mark ? `  [${figure.dataset.mark}]` : "";
    out.append(set(document.createElementNS(space, "text"), { x: 12, y: 25, "font-size": 15, "font-weight": 600, fill: ink }, `${figure.querySelector("h3").firstChild.textContent.trim()}${mark}`));
    svg.setAttribute("x", 4);
    svg.setAttribute("y", 36);
    out.append(svg);
    small.forEach((row, index) => out.append(set(document.createElementNS(space, "text"), { x: 12, y: height + 58 + index * 15, "font-size": 11, fill: quiet }, row.trim())));
    return { text: resolve(new XMLSerializer().serializeToString(out)), width, height: total };
  }

  const save = (url, name) => { const anchor = make("a", { href: url, download: name }); document.body.append(anchor); anchor.click(); anchor.remove(); };

  function figureTools(figure) {
    const tools = figure.querySelector(".figure-tools");
    const named = (what) => make("span", { class: "unseen" }, ` of ${what}`);
    const title = figure.querySelector("h3").firstChild.textContent.trim();
    const svg = make("button", { type: "button", onclick: () => {
      save(URL.createObjectURL(new Blob([standalone(figure).text], { type: "image/svg+xml" })), `${figure.dataset.name}.svg`);
    } }, "SVG", named(title));
    const png = make("button", { type: "button", onclick: () => {
      const picture = standalone(figure);
      const image = new Image();
      image.onload = () => {
        const canvas = make("canvas", { width: picture.width * 2, height: picture.height * 2 });
        canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
        canvas.toBlob((blob) => save(URL.createObjectURL(blob), `${figure.dataset.name}.png`), "image/png");
      };
      image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(picture.text)}`;
    } }, "PNG", named(title));
    tools.prepend(svg, png);
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

  // --- factors of energy and cost --------------------------------------------------------------------------------
  function factors(section) {
    const inputs = Object.fromEntries(all("input", section).map((input) => [input.dataset.factor, input]));
    const changed = (key) => inputs[key].value !== inputs[key].dataset.given;
    // Electricity's price alone may be below zero; what is shown of a factor as given is rounded.
    const read = (key) => {
      const text = changed(key) ? inputs[key].value : inputs[key].dataset.exact;
      const number = Number(text.replace(",", "."));
      return text.trim() && Number.isFinite(number) && (number >= 0 || key.startsWith("electricity")) ? number : null;
    };
    // With the digits that an interval of the number's `share` to either side leaves; without one, three and a half.
    const write = (cell, number, share = null) => {
      if (number === null) { cell.textContent = "–"; delete cell.dataset.value; return; }
      const size = Math.abs(number);
      const digits = !size ? 0 : share ? -Math.floor(Math.log10(size * share)) : 2 - Math.floor(Math.log10(size / 2));
      const most = Math.min(12, Math.max(0, digits));
      cell.textContent = number.toLocaleString("en", { minimumFractionDigits: share ? most : 0, maximumFractionDigits: most });
      cell.dataset.value = number;
    };
    const times = (a, b) => (a === null || b === null ? null : a * b);
    const perKwh = { co2: "co2_kg_per_1m_output_tok", market: "co2_market_kg_per_1m_output_tok" };
    const nodeCost = (speed, price) => (price === null || !speed ? null : price / (3600 * speed) * 1e6);
    // A factor at the low or high end of its range; a value that the reader gave has no range but the reader's own.
    // `own`: the factors of the row's own hours, until the reader gives one for all.
    const at = (key, end, own) => {
      if (key in own && !changed(key)) return own[key];
      const now = read(key);
      const side = end ? read(`${key}.${end}`) : null;
      return now === null || side === null || (changed(key) && !changed(`${key}.${end}`)) ? now : side;
    };
    const figures = (cell, own, end) => {
      const [pue, co2, market, wue, water, embodied, price, electricity] = ["pue", "co2", "market", "wue", "water", "embodied", "price", "electricity"].map((key) => at(key, end, own));
      const joule = cell("energy_j_per_output_tok");
      const speed = cell("output_tok_per_s");
      const boards = joule === null ? null : joule / 3.6;
      const kwh = times(boards, pue);
      const [node, electric] = [nodeCost(speed, price), times(kwh, electricity)];
      const priced = (node === null) === (price === null) && (electric === null) === (electricity === null) && (node !== null || electric !== null);
      return {
        kwh, co2: times(kwh, co2), market: times(kwh, market),
        water: kwh === null ? null : boards * (wue || 0) + kwh * (water || 0),
        embodied: embodied === null || !speed || cell("gpus") === null ? null : embodied * cell("gpus") / (3600 * speed) * 1e6,
        cost: priced ? (node || 0) + (electric || 0) : null,
      };
    };
    const columns = { kwh: "energy_kwh_per_1m_output_tok", ...perKwh, water: "water_l_per_1m_output_tok", embodied: "co2_embodied_kg_per_1m_output_tok", cost: "cost_per_1m_output_tok" };
    const keyed = (grid) => { const keys = all("thead th", grid).map((head) => head.dataset.key); return (row, key) => row.cells[keys.indexOf(key)]; };
    const toggle = (grid, key, off) => {
      const head = grid.querySelector(`th[data-key="${key}"]`);
      head.toggleAttribute("data-off", off);
      for (const row of grid.tBodies[0].rows) row.cells[head.cellIndex].toggleAttribute("data-off", off);
    };
    // Each table of figures with the one of its ranges, whose rows stand in the same order until a reader sorts them.
    const pairs = all("section.table:not(.compact)[data-name^='energy-']").map((each) => {
      const [grid, ranges] = [each, document.querySelector(`section.table[data-name="factor-ranges-${each.dataset.name.slice(7)}"]`)].map((one) => one.querySelector("table"));
      const cell = keyed(grid);
      const rows = [...grid.tBodies[0].rows].map((row, index) => {
        const known = (key) => value(cell(row, key));
        return { row, range: ranges.tBodies[0].rows[index], known };
      });
      return { grid, ranges, cell, rows };
    });
    // Tables by the hour of the day, whose rows have factors of their own.
    const hours = all("section.table[data-name^='hours-']").flatMap((each) => {
      const cell = keyed(each.querySelector("table"));
      return [...each.querySelector("tbody").rows].map((row) => {
        const known = (key) => value(cell(row, key));
        const own = Object.fromEntries(["co2", "market", "water", "electricity"].filter((key) => cell(row, `at_${key}`)).map((key) => [key, known(`at_${key}`)]));
        return { cell: (key) => cell(row, key), known, own };
      });
    });
    const shareOf = (known) => {
      const [low, high, joule] = ["low", "high", "energy_j_per_output_tok"].map(known);
      return low === null || high === null || !joule ? null : (high - low) / 2 / joule;
    };
    const unbounded = ["cost", "embodied"];
    const apply = () => {
      const volume = read("volume");
      for (const { grid, ranges, cell, rows } of pairs) {
        const end = keyed(ranges);
        const wide = {};
        for (const { row, range, known } of rows) {
          const share = shareOf(known);
          const [now, least, most] = [null, "low", "high"].map((side) => figures(known, {}, side));
          for (const [key, column] of Object.entries(columns)) {
            write(cell(row, column), now[key], unbounded.includes(key) ? null : share);
            write(end(range, `${key}_low`), least[key]);
            write(end(range, `${key}_high`), most[key]);
            wide[key] = wide[key] || (least[key] !== null && most[key] > least[key]);
          }
          for (const key of ["kwh", "co2", "water", "cost"]) write(cell(row, `month_${key}`), times(now[key], volume));
        }
        for (const key of Object.keys(columns)) for (const side of ["low", "high"]) toggle(ranges, `${key}_${side}`, !wide[key]);
        for (const key of ["kwh", "co2", "water", "cost"]) toggle(grid, `month_${key}`, volume === null);
        for (const key of ["market", "embodied"]) toggle(grid, columns[key], rows.every(({ row }) => value(cell(row, columns[key])) === null));
      }
      for (const { cell, known, own } of hours) {
        const now = figures(known, own, null);
        for (const [key, column] of Object.entries(columns)) if (cell(column)) write(cell(column), now[key], unbounded.includes(key) ? null : shareOf(known));
      }
      for (const input of Object.values(inputs)) input.classList.toggle("changed", input.value !== input.dataset.given);
    };
    for (const [key, input] of Object.entries(inputs)) {
      const kept = state.get(`factor.${key}`);
      if (kept !== null) input.value = kept;
      input.addEventListener("input", () => { state.set(`factor.${key}`, input.value === input.dataset.given ? "" : input.value); apply(); });
    }
    if (Object.values(inputs).some((input) => input.value !== input.dataset.given)) apply();
  }

  all(".factors").forEach(factors);
  all("section.table").forEach(table);
  all(".snippets").forEach(snippets);
  const figures = all("figure.figure");
  figures.forEach(figureTools);
  if (window.vegaEmbed && figures.length) {
    const near = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) { near.unobserve(entry.target); upgrade(entry.target); }
    }, { rootMargin: "400px" });
    figures.forEach((figure) => near.observe(figure));
  }
})();
