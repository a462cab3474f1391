// Two results side by side. What differs in how they were measured comes first; what is not comparable is not ranked.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("compare-data").textContent);
  const area = document.getElementById("compare");
  const result = document.getElementById("compare-result");
  if (!data.sides.length) return;
  area.hidden = false;
  const TITLES = { objective: "Objective", output_tok_per_s: "Output throughput (tok/s)", ttft_s_p95: "TTFT p95 (s)", tpot_s_p95: "TPOT p95 (s)", latency_s_p95: "Latency p95 (s)", energy_j_per_output_tok: "Energy (J/token)" };
  const show = (number) => (number === null || number === undefined ? "–" : number.toLocaleString("en", { maximumSignificantDigits: 4 }));
  const row = (tag, cells, differs) => {
    const line = document.createElement("tr");
    if (differs) line.className = "differs";
    cells.forEach((text, index) => {
      const cell = document.createElement(tag);
      if (tag === "th") cell.scope = "col";
      if (text && text.href) { const link = document.createElement("a"); link.href = text.href; link.textContent = text.text; cell.append(link); } else cell.textContent = text;
      line.append(cell);
    });
    return line;
  };
  const grid = (heads, lines, title) => {
    const table = document.createElement("table");
    table.createTHead().append(row("th", heads));
    const body = table.createTBody();
    lines.forEach((line) => body.append(row("td", line.cells, line.differs)));
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
    const percent = `${ratio >= 0 ? "+" : "−"}${Math.abs(ratio * 100).toFixed(1)}%`;
    const known = [left, right].every((side) => side.config.low != null);
    const told = known ? right.config.low > left.config.high || right.config.high < left.config.low : Math.abs(ratio) > left.sweep.margin;
    const basis = known ? "95% intervals" : `one launch on at least one side, so only the margin of ${(left.sweep.margin * 100).toFixed(0)}% tells them apart`;
    return told ? `The second is ${percent} against the first (${(ratio > 0) === left.sweep.higher ? "better" : "worse"}; ${basis}).` : `The two cannot be told apart (${percent}; ${basis}).`;
  };
  const draw = () => {
    const [left, right] = [pick("left"), pick("right")];
    const keys = Object.keys(left.sweep.environment);
    const differing = (key) => left.sweep.environment[key] !== right.sweep.environment[key];
    const lines = [...keys.filter(differing), ...keys.filter((key) => !differing(key))].map((key) => ({ cells: [key, left.sweep.environment[key], right.sweep.environment[key]], differs: differing(key) }));
    const values = Object.keys(TITLES).filter((key) => left.config.values[key] != null || right.config.values[key] != null).map((key) => {
      const [a, b] = [left.config.values[key], right.config.values[key]];
      return { cells: [key === "objective" ? `Objective (${left.sweep.unit})` : TITLES[key], show(a), show(b), a && b != null ? `${(b / a).toFixed(3)}` : "–"] };
    });
    values.unshift({ cells: ["Config", { text: left.config.label, href: left.config.href }, { text: right.config.label, href: right.config.href }, ""] });
    values.push({ cells: ["Launches", String(left.config.n), String(right.config.n), ""] });
    const answer = document.createElement("p");
    answer.className = "sentence answer";
    answer.textContent = sentence(left, right);
    result.replaceChildren(answer, ...grid(["Measured in", "First", "Second"], lines, "How they were measured"), ...grid(["Measured", "First", "Second", "Second ÷ first"], values, "What was measured"));
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
