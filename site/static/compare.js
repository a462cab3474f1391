// Two results side by side. What differs in how they were measured comes first; what is not comparable is not ranked.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("compare-data").textContent);
  const area = document.getElementById("compare");
  const result = document.getElementById("compare-result");
  if (!data.sides.length) return;
  area.hidden = false;
  const show = (number) => (number === null || number === undefined ? "–" : number.toLocaleString("en", { maximumSignificantDigits: 4 }));
  const row = (tag, cells, differs, numbers) => {
    const line = document.createElement("tr");
    if (differs) line.className = "differs";
    cells.forEach((text, index) => {
      const cell = document.createElement(tag);
      if (tag === "th") cell.scope = "col";
      if (numbers && index) cell.className = "k-number";
      if (text && text.href) { const link = document.createElement("a"); link.href = text.href; link.textContent = text.text; cell.append(link); } else cell.textContent = text;
      line.append(cell);
    });
    return line;
  };
  const grid = (heads, lines, title, numbers) => {
    const table = document.createElement("table");
    table.createTHead().append(row("th", heads, false, numbers));
    const body = table.createTBody();
    lines.forEach((line) => body.append(row("td", line.cells, line.differs, numbers)));
    const heading = document.createElement("h2");
    heading.textContent = title;
    const holder = document.createElement("div");
    holder.className = "scroll";
    holder.tabIndex = 0;
    holder.setAttribute("role", "region");
    holder.setAttribute("aria-label", title);
    holder.append(table);
    return [heading, holder];
  };
  const pick = (side) => {
    const sweep = data.sides[document.getElementById(`${side}-sweep`).selectedIndex];
    const index = document.getElementById(`${side}-config`).selectedIndex;
    return { sweep, config: sweep.configs[index] };
  };
  const sentence = (left, right) => {
    const apart = data.must_match.filter((key) => left.sweep.environment[key] !== right.sweep.environment[key]);
    if (apart.length) return `Not ranked: ${apart.join(", ").toLowerCase()} differ, so the two do not measure the same.`;
    const [a, b] = [left.config.values.objective, right.config.values.objective];
    if (a == null || b == null) return "One of the two has no result, so there is nothing to rank.";
    const ratio = b / a - 1;
    const percent = `${Math.abs(ratio * 100).toFixed(1)}%`;
    const what = `${left.sweep.objective} at ${left.sweep.environment["Load level"]}`;
    const known = [left, right].every((side) => side.config.low != null);
    if (!ratio) return `${what}: the two measured the same.`;
    // The ranking's verdict is of the best against another of its own sweep.
    const best = known && left.sweep.key === right.sweep.key && [left, right].find((side) => side.config.group === "best");
    const other = best === left ? right : left;
    const differs = best ? other.config.group !== "tie" : known ? right.config.low > left.config.high || right.config.high < left.config.low : Math.abs(ratio) > left.sweep.margin;
    const basis = best ? "that is the ranking's verdict" : known ? `their 95% intervals ${differs ? "are apart" : "overlap"} (a coarser test than a ranking's)` : `without an interval on both sides only differences beyond ${(left.sweep.margin * 100).toFixed(0)}% count`;
    const found = differs ? `the second is ${(ratio > 0) === left.sweep.higher ? "better" : "worse"}` : "the two are not distinguishable";
    return `${what}: ${found}. The second has ${percent} ${ratio > 0 ? "more" : "less"}; ${basis}.`;
  };
  const draw = () => {
    const [left, right] = [pick("left"), pick("right")];
    const keys = Object.keys(left.sweep.environment).filter((key) => left.sweep.environment[key] !== "–" || right.sweep.environment[key] !== "–");
    const differing = (key) => left.sweep.environment[key] !== right.sweep.environment[key];
    const lines = [...keys.filter(differing), ...keys.filter((key) => !differing(key))].map((key) => ({ cells: [key, left.sweep.environment[key], right.sweep.environment[key]], differs: differing(key) }));
    const same = left.sweep.objective === right.sweep.objective && left.sweep.unit === right.sweep.unit;
    const asked = data.rows.some((each) => each.title === left.sweep.objective) || !same ? [] : [{ key: "objective", title: left.sweep.objective, unit: left.sweep.unit, scale: 1 }];
    const values = [...asked, ...data.rows].filter(({ key }) => left.config.values[key] != null || right.config.values[key] != null).map(({ key, title, unit, scale }) => {
      const [a, b] = [left.config.values[key], right.config.values[key]].map((number) => (number == null ? null : number * scale));
      const ranked = same && title === left.sweep.objective && (left.config.low != null || right.config.low != null);
      const whole = (number, { low, high }) => (ranked && low != null ? `${show(number)} (${show(low * scale)} to ${show(high * scale)})` : show(number));
      return { cells: [`${title} (${unit}${ranked ? ", 95% interval" : ""})`, whole(a, left.config), whole(b, right.config), a && b != null ? `${(b / a).toFixed(3)}` : "–"] };
    });
    values.unshift({ cells: ["Config", { text: left.config.short, href: left.config.href }, { text: right.config.short, href: right.config.href }, ""] });
    values.push({ cells: ["Launches with a result", String(left.config.n), String(right.config.n), ""] });
    const answer = document.createElement("p");
    answer.className = "sentence answer";
    answer.textContent = sentence(left, right);
    result.replaceChildren(answer, ...grid(["Measured in", "First", "Second"], lines, "How they were measured"), ...grid(["Measured", "First", "Second", "Second ÷ first"], values, "What was measured", true));
    const keep = (name, text) => window.tokenpeakState && window.tokenpeakState.set(name, text);
    for (const side of ["left", "right"]) { const chosen = pick(side); keep(`${side}`, `${chosen.sweep.key}|${chosen.config.id}`); }
  };
  const fill = (side, start) => {
    const sweeps = document.getElementById(`${side}-sweep`);
    const configs = document.getElementById(`${side}-config`);
    data.sides.forEach((each) => sweeps.add(new Option(each.title)));
    const list = (chosen) => {
      configs.replaceChildren();
      data.sides[sweeps.selectedIndex].configs.forEach((config) => configs.add(new Option(`${config.label}${config.state === "ok" ? "" : ` (${config.state})`}`)));
      configs.selectedIndex = chosen;
    };
    sweeps.selectedIndex = start[0];
    list(start[1]);
    sweeps.addEventListener("change", () => { list(0); draw(); });
    configs.addEventListener("change", draw);
  };
  const kept = (side, usual) => {
    const text = new URLSearchParams(location.hash.slice(1)).get(side);
    if (!text) return usual;
    const parts = text.split("|");
    const id = parts.pop();
    const sweep = data.sides.findIndex((each) => each.key === parts.join("|"));
    const config = sweep < 0 ? -1 : data.sides[sweep].configs.findIndex((each) => each.id === id);
    return config < 0 ? usual : [sweep, config];
  };
  fill("left", kept("left", [0, Math.min(1, data.sides[0].configs.length - 1)]));
  fill("right", kept("right", [0, 0]));
  // The page's own script keeps state; it runs after this one.
  document.addEventListener("DOMContentLoaded", draw);
})();
