// Up to six results over each other. What differs in how they were measured comes first; what is not comparable is not
// ranked. The address's fragment keeps what is chosen. Each sweep's results are a script, loaded when it is chosen.
"use strict";
(() => {
  const { all, make, state, embed, onWidth } = window.tokenpeak;
  const data = JSON.parse(document.getElementById("compare-data").textContent);
  const area = document.getElementById("compare");
  const result = document.getElementById("compare-result");
  const list = area.querySelector(".chosen");
  if (!data.sides.length) return;
  area.hidden = false;
  // Numbers of one row, whose largest has four digits.
  const shower = (numbers) => {
    const most = Math.max(...numbers.map(Math.abs));
    const digits = most ? Math.min(12, Math.max(0, 3 - Math.floor(Math.log10(most)))) : 0;
    return (number) => number.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  };

  const scripts = new Map();
  // The results of a side's configs; none where its script is not there.
  const load = async (side) => {
    if (!scripts.has(side.script)) {
      scripts.set(side.script, new Promise((done) => {
        document.head.append(make("script", { src: side.script, onload: done, onerror: done }));
      }));
    }
    await scripts.get(side.script);
    side.configs = window.tokenpeak.compared?.[side.key] || [];
  };
  const sideOf = (key) => data.sides.find((side) => key.startsWith(`${side.key}|`));
  const resultOf = (side, config) => ({ sweep: side, config, key: `${side.key}|${config.id}` });
  const find = (key) => {
    const side = sideOf(key);
    const config = side && side.configs.find((each) => key === `${side.key}|${each.id}`);
    return config && resultOf(side, config);
  };

  // What is chosen, in order; the first is what others are measured against.
  let chosen = [];
  const begin = async () => {
    const kept = (state.get("chosen") || "").split("~").filter(sideOf);
    await Promise.all([data.sides[0], ...kept.map(sideOf)].map(load));
    chosen = kept.map(find).filter(Boolean);
    if (!chosen.length) chosen = data.sides[0].configs.slice(0, 2).map((config) => resultOf(data.sides[0], config));
    draw();
  };
  const named = () => {
    const several = new Set(chosen.map((each) => each.sweep.key)).size > 1;
    return chosen.map((each, index) => `${index + 1}: ${each.config.short}${several ? ` · ${each.sweep.title}` : ""}`);
  };

  const grid = (title, heads, lines, numbers) => {
    const head = make("tr", {}, ...heads.map((text, index) => make("th", { scope: "col", class: numbers && index ? "k-number" : null }, text)));
    const body = lines.map(({ cells, differs }) => make("tr", { class: differs ? "differs" : null }, ...cells.map((cell, index) => make("td", { class: numbers && index ? "k-number" : null }, cell))));
    return [make("h2", {}, title), make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)))];
  };

  function sentence(left, right, name) {
    const apart = data.must_match.filter((key) => left.sweep.environment[key] !== right.sweep.environment[key]);
    if (apart.length) return `Not ranked against ${name}: ${apart.join(", ").toLowerCase()} differ${apart.length > 1 ? "" : "s"}.`;
    const [a, b] = [left.config.values.objective, right.config.values.objective];
    if (a == null || b == null) return `${name}: one of the two has no result.`;
    const ratio = b / a - 1;
    const known = [left, right].every((side) => side.config.low != null);
    if (!ratio) return `${name}: the two measured the same.`;
    // The ranking's verdict is of the best that may be run against another of its own sweep.
    const mayRun = [left, right].every((side) => side.config.kept_back == null);
    const best = known && mayRun && left.sweep.key === right.sweep.key && [left, right].find((side) => side.config.group === "best");
    const other = best === left ? right : left;
    const differs = best ? other.config.group !== "tie" : known ? right.config.low > left.config.high || right.config.high < left.config.low : Math.abs(ratio) > left.sweep.margin;
    const basis = best ? "by the ranking" : known ? `their 95% intervals ${differs ? "are apart" : "overlap"}` : differs ? "too few launches for an interval" : `differences below ${(left.sweep.margin * 100).toFixed(0)}% do not count`;
    // Without an interval nobody knows what another launch would measure: which is higher is all that is known.
    const better = (ratio > 0) === left.sweep.higher ? "better" : "worse";
    const found = !differs ? "not distinguishable" : known ? better : `${ratio > 0 ? "higher" : "lower"}, not proven`;
    return `${name}: ${ratio > 0 ? "+" : "−"}${Math.abs(ratio * 100).toFixed(1)}% against the first, ${found} (${basis}).`;
  }

  function draw() {
    const names = named();
    list.replaceChildren(...chosen.map((each, index) => make("li", {}, make("span", { class: `swatch swatch-${index}` }), ` ${each.config.label} `, make("span", { class: "unit" }, each.sweep.title), " ", make("button", { type: "button", "aria-label": `Remove ${each.config.label}`, onclick: () => { chosen.splice(index, 1); draw(); } }, "Remove"))));
    document.getElementById("add").disabled = chosen.length >= data.most;
    state.set("chosen", chosen.map((each) => each.key).join("~"));
    if (!chosen.length) { result.replaceChildren(); return; }
    const [first, ...others] = chosen;
    const environment = Object.keys(first.sweep.environment).filter((key) => chosen.some((each) => each.sweep.environment[key] !== "–"));
    const differing = (key) => chosen.some((each) => each.sweep.environment[key] !== first.sweep.environment[key]);
    const line = (key) => ({ cells: [key, ...chosen.map((each) => each.sweep.environment[key])], differs: differing(key) });
    const [apart, alike] = [environment.filter(differing), environment.filter((key) => !differing(key))];
    const same = chosen.every((each) => each.sweep.objective === first.sweep.objective && each.sweep.unit === first.sweep.unit);
    const asked = data.rows.some((row) => row.title === first.sweep.objective) || !same ? [] : [{ key: "objective", title: first.sweep.objective, unit: first.sweep.unit, scale: 1 }];
    const values = [...asked, ...data.rows].filter(({ key }) => chosen.some((each) => each.config.values[key] != null)).map(({ key, title, unit, scale }) => {
      const own = same && title === first.sweep.objective;
      const show = shower(chosen.map(({ config }) => config.values[key]).filter((value) => value != null).map((value) => value * scale));
      const whole = ({ config }) => {
        const value = config.values[key];
        const ends = own && config.low != null ? ` (${show(config.low * scale)} to ${show(config.high * scale)})` : "";
        const base = first.config.values[key];
        const change = config !== first.config && base && value != null ? ` ${value >= base ? "+" : "−"}${Math.abs((value / base - 1) * 100).toFixed(1)}%` : "";
        return value == null ? "–" : make("span", {}, `${show(value * scale)}${ends}`, make("span", { class: "unit" }, change));
      };
      return { cells: [`${title} (${unit}${own && chosen.some((each) => each.config.low != null) ? ", 95% interval" : ""})`, ...chosen.map(whole)] };
    });
    values.unshift({ cells: ["Config", ...chosen.map((each) => make("a", { href: each.config.href }, each.config.short))] });
    values.push({ cells: ["Launches with a result", ...chosen.map((each) => String(each.config.n))] });
    const said = others.map((each, index) => make("p", { class: index ? "sentence note" : "sentence answer" }, sentence(first, each, names[index + 1])));
    const figures = make("div", { class: "blocks" });
    const picture = (title, spec, rows, words) => {
      const holder = make("div", { class: "chart", role: "img", "aria-label": `${title}. ${words}` });
      figures.append(make("figure", { class: "figure span-half" }, make("figcaption", {}, make("h2", {}, title)), holder, make("p", { class: "caption" }, words)));
      const copy = structuredClone(spec);
      copy.datasets = { rows };
      for (const each of copy.params) if (each.name === "picked") each.value = names;
      return () => { copy.width = Math.max(160, Math.min(copy.width, holder.clientWidth - 300)); embed(holder, copy); };
    };
    const ranked = chosen.filter((each) => each.config.values.objective != null);
    const drawn = [];
    if (same && ranked.length) drawn.push(picture(`${first.sweep.objective} (${first.sweep.unit})`, data.charts.results, chosen.flatMap((each, index) => (each.config.values.objective == null ? [] : [{ series: names[index], value: each.config.values.objective, low: each.config.low, high: each.config.high, n: each.config.n }])), "Bars are 95% intervals, where launches give one."));
    const speeds = chosen.flatMap((each, index) => each.config.levels.map(([level, x, y]) => ({ series: names[index], level, x, y })));
    if (speeds.length) drawn.push(picture("Throughput against a user's speed", data.charts.speeds, speeds, "Each point is a load level; up and to the right is better."));
    const [, others_alike] = grid("Measured alike", ["Measured in", names[0]], alike.map((key) => ({ cells: [key, first.sweep.environment[key]] })));
    const environments = apart.length ? grid("What differs in how they were measured", ["Measured in", ...names], apart.map(line)) : [];
    result.replaceChildren(...said, figures, ...grid("What was measured", ["Measured", ...names], values, true), ...environments, make("details", { class: "alike" }, make("summary", {}, apart.length ? "All else is alike" : "All were measured alike"), others_alike));
    for (const each of drawn) each();
  }

  const sweeps = document.getElementById("add-sweep");
  const configs = document.getElementById("add-config");
  data.sides.forEach((each) => sweeps.add(new Option(each.title)));
  const add = document.getElementById("add");
  const fill = async () => {
    const side = data.sides[sweeps.selectedIndex];
    configs.replaceChildren();
    await load(side);
    if (side !== data.sides[sweeps.selectedIndex]) return;
    configs.replaceChildren(...side.configs.map((config) => new Option(`${config.label}${config.state === "ok" ? "" : ` (${config.state})`}`)));
  };
  sweeps.addEventListener("change", fill);
  add.addEventListener("click", () => {
    const side = data.sides[sweeps.selectedIndex];
    const config = side.configs?.[configs.selectedIndex];
    if (!config) return;
    const added = resultOf(side, config);
    if (chosen.length < data.most && !chosen.some((each) => each.key === added.key)) { chosen.push(added); draw(); }
  });
  fill();
  begin();
  onWidth(draw);
})();
