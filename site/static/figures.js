// Figures that answer the pointer: hover, configs that are picked from legend, line or table, zoom along the horizontal
// axis, pictures to download. The Vega runtime is read when the first figure needs it; others stay the still pictures
// that the page came with.
"use strict";
(() => {
  const { all, make, state } = window.tokenpeak;
  const source = document.currentScript.src.replace(/figures\.js$/, "vega.js");
  const OPTIONS = { ast: true, logLevel: 1 /* errors */, renderer: "svg", actions: false, defaultStyle: false, tooltip: { disableDefaultStyle: true }, patch: legible };
  const PADDING = 11; // of a chart's place
  const SMALLER = 1.18; // a still picture may be drawn so many times smaller
  const MOST = 6; // configs that are picked at once: as many as there are colours and shapes for
  const SHAPES = ["M4,0a4,4 0 1 1 -8,0a4,4 0 1 1 8,0", "M-3.6,-3.6h7.2v7.2h-7.2z", "M0,-4.4L4.2,3.6H-4.2z", "M0,-4.8L4,0L0,4.8L-4,0z", "M-1.5,-4.4h3v2.9h2.9v3h-2.9v2.9h-3v-2.9h-2.9v-3h2.9z", "M0,4.4L4.2,-3.6H-4.2z"];

  // A figure's specification; its longer data sets stand in the page column by column.
  function specOf(figure) {
    const spec = JSON.parse(figure.querySelector("script.spec").textContent);
    for (const [name, set] of Object.entries(spec.datasets || {})) if (set.columns) spec.datasets[name] = unpacked(set);
    return spec;
  }

  // What page_weight.packed_rows packed: values of a column, or each once with the place of every row's.
  function unpacked({ rows, columns }) {
    const found = Array.from({ length: rows }, () => ({}));
    for (const [key, own] of Object.entries(columns)) found.forEach((row, index) => { row[key] = own.of ? own.of[own.at ? own.at[index] : 0] : own[index]; });
    return found;
  }

  // Calls what waits for the runtime when it has been read.
  const waiting = [];
  function vega(then) {
    if (window.vegaEmbed) { then(window.vegaEmbed); return; }
    waiting.push(then);
    if (waiting.length > 1) return;
    const read = () => { for (const each of waiting.splice(0)) each(window.vegaEmbed); };
    document.head.append(make("script", { src: source, onload: read, onerror: () => console.error(`${source} cannot be read`) }));
  }

  // Legends answer the pointer too.
  function legible(spec) {
    for (const legend of [...(spec.legends || []), ...(spec.marks || []).flatMap((mark) => mark.legends || [])]) {
      for (const part of ["symbols", "labels"]) {
        const encode = ((legend.encode ||= {})[part] ||= {});
        encode.interactive = true;
        encode.update = { ...encode.update, cursor: { value: "pointer" } };
      }
    }
    return spec;
  }

  // --- what pages set in figures ---------------------------------------------------------------------------------
  const views = new Map();
  const has = (view, name) => { try { view.signal(name); return true; } catch { return false; } };
  const send = (view, name, value) => { if (has(view, name)) view.signal(name, value).runAsync(); };
  // The holder is one picture with one description; its parts have none of their own.
  const plain = (holder) => { for (const part of all("[role],[aria-roledescription],[aria-label]", holder)) for (const name of ["role", "aria-roledescription", "aria-label"]) part.removeAttribute(name); };
  window.tokenpeak.embed = (holder, spec) => vega(async (embed) => { await embed(holder, spec, OPTIONS); plain(holder); });

  // A window of another width gets figures of its own; a phone's address bar changes the height alone.
  window.tokenpeak.onWidth = (then) => {
    let [width, wait] = [innerWidth, 0];
    addEventListener("resize", () => {
      if (innerWidth === width) return;
      width = innerWidth;
      clearTimeout(wait);
      wait = setTimeout(then, 150);
    });
  };

  // --- configs that are picked, for all figures and tables of one scope -------------------------------------------
  const scopes = new Map();
  class Scope {
    constructor(name, usual) {
      this.key = `picked.${name}`;
      this.usual = usual;
      const kept = state.get(this.key);
      this.picked = kept === null ? usual : kept.split("|").filter(Boolean);
      this.views = [];
      this.buttons = new Map();
    }

    toggle(series) {
      this.picked = this.picked.includes(series) ? this.picked.filter((each) => each !== series) : [...this.picked, series].slice(-MOST);
      state.set(this.key, this.picked.join("|") === this.usual.join("|") ? "" : this.picked.join("|") || "|");
      this.show();
    }

    show() {
      for (const view of this.views) send(view, "picked", this.picked);
      for (const [series, buttons] of this.buttons) for (const button of buttons) this.mark(button, this.picked.indexOf(series));
    }

    mark(button, slot) {
      button.setAttribute("aria-pressed", String(slot >= 0));
      button.closest("tr").classList.toggle("picked", slot >= 0);
      button.dataset.slot = slot;
      button.firstChild.firstChild.setAttribute("d", SHAPES[Math.max(slot, 0)]);
    }

    table(section) {
      for (const row of all("tbody tr", section)) {
        const cell = row.cells[0];
        const series = cell.textContent.trim();
        const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
        svg.setAttribute("viewBox", "-6 -6 12 12");
        svg.append(document.createElementNS("http://www.w3.org/2000/svg", "path"));
        const button = make("button", { type: "button", class: "pick", "aria-label": `Show ${series} in the figures`, title: "Show in the figures" });
        button.append(svg);
        cell.prepend(button);
        this.buttons.set(series, [...(this.buttons.get(series) || []), button]);
        row.addEventListener("click", (event) => { if (event.target.closest(".pick") || !event.target.closest("a,button,input")) this.toggle(series); });
      }
      section.classList.add("pickable");
      this.show();
    }
  }
  const named = (spec) => (spec.params || []).find((each) => each.name === "picked");
  const scopeOf = (figure, spec) => {
    const name = figure.dataset.scope;
    if (!scopes.has(name)) scopes.set(name, new Scope(name, named(spec)?.value || []));
    return scopes.get(name);
  };

  // --- drawing ---------------------------------------------------------------------------------------------------
  // A legend's own number of columns comes before the config's, and a row of them may be wider than a phone.
  function stackLegends(part, room) {
    if (part === null || typeof part !== "object") return;
    if (part.legend?.columns) Object.assign(part.legend, { columns: 1, labelLimit: room - 110 /* axis, symbol and padding */ });
    for (const [name, each] of Object.entries(part)) if (name !== "data" && name !== "datasets") stackLegends(each, room);
  }

  // As many plots in a row as there is room for, each as wide as that leaves; labels keep their size.
  function layOut(spec, room, drawn, most = 760) {
    const least = 250;
    if (spec.concat) {
      const margin = drawn / Math.min(spec.columns, spec.concat.length) - spec.concat[0].width;
      spec.columns = Math.min(spec.concat.length, Math.max(1, Math.floor(room / (least + margin))));
      for (const plot of spec.concat) plot.width = Math.max(140, Math.floor(room / spec.columns - margin));
    } else if (spec.facet) {
      const each = spec.spec.width + 20 /* Vega-Lite's own spacing */;
      const left = room - (drawn - (spec.columns || 1) * each + 20);
      spec.columns = Math.max(1, Math.floor((left + 20) / each));
      if (spec.columns === 1) spec.spec.width = Math.max(spec.usermeta?.least || 140, Math.min(spec.spec.width, left - 4));
    } else if (typeof spec.width === "number") {
      spec.width = Math.max(140, Math.min(room - (drawn - spec.width) - 8, Math.max(spec.width, most)));
    }
    if (room < 520 && spec.config) {
      spec.config.legend.columns = 1;
      stackLegends(spec, room);
      // A name that is wider than its plot stands over the labels on the left, where there is room.
      spec.config.header.labelAnchor = "end";
    }
    if (room < 480 && spec.config) {
      spec.config.axis.labelFontSize = spec.config.header.labelFontSize = 10.5;
      for (const plot of [spec, spec.spec || {}]) if (plot.layer) plot.layer = plot.layer.filter((layer) => layer.name !== "beside");
    }
  }

  const LEAST_PLOT = 120;

  // Plots of the widest row give up what is too much, each its share.
  function shrink(spec, over) {
    const rows = spec.vconcat ? spec.vconcat.map((row) => row.hconcat || [row]) : [spec.concat ? spec.concat.slice(0, spec.columns) : Array(spec.facet ? spec.columns || 1 : 1).fill(spec.facet ? spec.spec : spec)];
    const widest = Math.max(...rows.map((row) => row.reduce((sum, plot) => sum + plot.width, 0)));
    const share = Math.max(0.2, 1 - over / widest);
    for (const plot of new Set([...(spec.concat || []), ...rows.flat()])) plot.width = Math.max(LEAST_PLOT, Math.floor(plot.width * share));
  }

  // The still picture that a figure came with, and how often the figure has been drawn.
  const stills = new Map();
  const drawings = new Map();

  function upgrade(figure) {
    const holder = figure.querySelector(".chart");
    if (!stills.has(figure)) stills.set(figure, holder.querySelector(":scope > svg"));
    const still = stills.get(figure);
    const drawn = Number(still.getAttribute("width"));
    const drawing = (drawings.get(figure) || 0) + 1;
    drawings.set(figure, drawing);
    const scope = figure.dataset.scope && scopeOf(figure, specOf(figure));
    const old = views.get(figure);
    const put = (picture, view) => {
      for (const each of [...holder.children]) if (each !== picture) each.remove();
      if (!picture.isConnected) holder.append(picture);
      if (old) old.finalize();
      if (view) views.set(figure, view); else views.delete(figure);
    };
    // A still picture stays where its letters can be read.
    if (!scope && drawn <= holder.clientWidth * SMALLER) { put(still, null); return; }
    const fresh = make("div", { class: "embed" });
    const spec = specOf(figure);
    layOut(spec, figure.clientWidth, drawn, figure.classList.contains("span-full") ? 1100 : 760);
    const set = scope ? { picked: scope.picked, zoom: zoomOf(figure) } : {};
    for (const each of spec.params || []) if (each.name in set) each.value = set[each.name];
    // Drawn unseen, then put in the place of the picture before it: nothing on the page moves.
    fresh.hidden = true;
    holder.append(fresh);
    vega(async (embed) => {
      try {
        let drawn = await embed(fresh, spec, OPTIONS);
        // Letters are wider here than where the still picture was made.
        for (let tries = 0; tries < 3; tries += 1) {
          const over = Number(fresh.querySelector("svg").getAttribute("width")) - holder.clientWidth + 2 * PADDING;
          if (over <= 0) break;
          shrink(spec, over);
          drawn.finalize();
          drawn = await embed(fresh, spec, OPTIONS);
        }
        if (drawings.get(figure) !== drawing) { drawn.finalize(); fresh.remove(); return; }
        put(fresh, drawn.view);
        fresh.hidden = false;
        if (scope) { scope.views = [...scope.views.filter((view) => view !== old), drawn.view]; answer(figure, drawn.view, scope); }
        plain(fresh);
      } catch (error) { fresh.remove(); console.error(`figure ${figure.dataset.name}: ${error.message}`); }
    });
  }

  function answer(figure, view, scope) {
    view.addEventListener("click", (_, item) => {
      const datum = item?.datum;
      const series = /^legend-/.test(item?.mark?.role || "") ? datum?.value : datum?.series;
      if (typeof series === "string") scope.toggle(series);
    });
    if (has(view, "zoom") && !figure.querySelector(".zoom")) brush(figure);
  }

  // --- zoom ------------------------------------------------------------------------------------------------------
  const zoomOf = (figure) => {
    const ends = (state.get(`zoom.${figure.dataset.name}`) || "").split("~").map(Number);
    return ends.length === 2 && ends.every(Number.isFinite) && ends[0] < ends[1] ? ends : null;
  };
  function zoom(figure, ends) {
    const found = ends && ends.every(Number.isFinite) && ends[0] < ends[1] ? ends.map((end) => Number(end.toPrecision(4))) : null;
    state.set(`zoom.${figure.dataset.name}`, found ? found.join("~") : "");
    send(views.get(figure), "zoom", found);
    shown(figure, found);
  }
  const layersOf = (plot) => (plot.layer ? plot.layer.flatMap(layersOf) : [plot]);
  // What a figure draws of a config, as its hint names it.
  const clickable = (spec) => {
    const drawn = (spec.concat || [spec]).flatMap(layersOf).map((layer) => layer.mark?.type || layer.mark);
    return drawn.includes("line") ? "a line" : drawn.includes("point") ? "a point" : "a mark";
  };
  const shown = (figure, ends) => all(".zoom input", figure).forEach((input, index) => { input.value = ends ? ends[index] : ""; });

  function brush(figure) {
    const holder = figure.querySelector(".chart");
    // The plot below the pointer, with its scale.
    const panels = (specOf(figure).concat || [null]).map((panel, index) => (panel ? [`.concat_${index}_group`, `concat_${index}_x`] : [".role-frame", "x"]));
    const plotAt = (event) => {
      for (const [group, scale] of panels) {
        const box = holder.querySelector(`.embed ${group} path.background`)?.getBoundingClientRect();
        if (box && event.clientX >= box.left && event.clientX <= box.right && event.clientY >= box.top && event.clientY <= box.bottom) return { box, scale: views.get(figure).scale(scale) };
      }
      return null;
    };
    holder.addEventListener("pointerdown", (event) => {
      const found = event.pointerType !== "touch" && event.button === 0 ? plotAt(event) : null;
      if (!found) return;
      const { box, scale } = found;
      const outer = holder.getBoundingClientRect();
      const band = make("div", { class: "brush" });
      const inside = (x) => Math.min(Math.max(x, box.left), box.right);
      const move = (now) => {
        const [from, to] = [event.clientX, inside(now.clientX)].sort((a, b) => a - b);
        Object.assign(band.style, { left: `${from - outer.left + holder.scrollLeft}px`, width: `${to - from}px`, top: `${box.top - outer.top}px`, height: `${box.height}px` });
        if (!band.isConnected && to - from > 6) holder.append(band);
      };
      const end = (now) => {
        removeEventListener("pointermove", move);
        removeEventListener("pointerup", end);
        if (!band.isConnected) return;
        band.remove();
        zoom(figure, [event.clientX, inside(now.clientX)].map((x) => scale.invert(x - box.left)).sort((a, b) => a - b));
      };
      addEventListener("pointermove", move);
      addEventListener("pointerup", end);
      event.preventDefault();
    });
    holder.addEventListener("dblclick", () => zoom(figure, null));
    const entry = (words) => make("input", { inputmode: "decimal", autocomplete: "off", "aria-label": `Zoom ${words}`, onchange: () => {
      const ends = all(".zoom input", figure).map((input) => (input.value.trim() ? Number(input.value) : NaN));
      if (ends.every(Number.isFinite)) zoom(figure, ends); else if (all(".zoom input", figure).every((input) => !input.value.trim())) zoom(figure, null);
    } });
    const spec = specOf(figure);
    const axis = layersOf(spec.concat?.[0] || spec).map((each) => each.encoding?.x?.title).find(Boolean) || "";
    figure.querySelector(".figure-tools").append(make("span", { class: "zoom" }, `Zoom ${axis} `, entry("from"), " to ", entry("to"), " ", make("button", { type: "button", onclick: () => zoom(figure, null) }, "All")));
    shown(figure, zoomOf(figure));
  }

  // --- downloads -------------------------------------------------------------------------------------------------
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

  document.addEventListener("DOMContentLoaded", () => {
    const figures = all("figure.figure[data-name]");
    figures.forEach(figureTools);
    for (const figure of figures) if (figure.dataset.scope) scopeOf(figure, specOf(figure));
    for (const name of scopes.keys()) {
      const first = all("figure.figure[data-name]").find((figure) => figure.dataset.scope === name);
      if (scopes.get(name).usual.length) first.querySelector(".caption").after(make("p", { class: "hint" }, `Click ${clickable(specOf(first))}, a legend entry or a row of a table to show or hide a config; drag along the axis to zoom.`));
    }
    for (const section of all("section.table[data-scope]")) scopes.get(section.dataset.scope)?.table(section);
    const near = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) { near.unobserve(entry.target); upgrade(entry.target); }
    }, { rootMargin: "400px" });
    figures.forEach((figure) => near.observe(figure));
    window.tokenpeak.onWidth(() => figures.forEach((figure) => { near.unobserve(figure); near.observe(figure); }));
  });
})();
