// Factors of energy and cost that a reader changes: tables and figures of the page follow.
"use strict";
(() => {
  const { all, state, value } = window.tokenpeak;
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
    const nodeCost = (speed, price) => (price === null || !speed ? null : price / (3600 * speed) * 1e6);
    // A factor at the low or high end of its range; a value that the reader gave has no range but the reader's own.
    const at = (key, end) => {
      const now = read(key);
      const side = end ? read(`${key}.${end}`) : null;
      return now === null || side === null || (changed(key) && !changed(`${key}.${end}`)) ? now : side;
    };
    const figures = (cell, end) => {
      const [pue, co2, wue, water, price, electricity] = ["pue", "co2", "wue", "water", "price", "electricity"].map((key) => at(key, end));
      const joule = cell("energy_j_per_output_tok");
      const speed = cell("output_tok_per_s");
      const boards = joule === null ? null : joule / 3.6;
      const kwh = times(boards, pue);
      const [node, electric] = [nodeCost(speed, price), times(kwh, electricity)];
      const priced = (node === null) === (price === null) && (electric === null) === (electricity === null) && (node !== null || electric !== null);
      return {
        kwh, co2: times(kwh, co2),
        water: kwh === null ? null : boards * (wue || 0) + kwh * (water || 0),
        cost: priced ? (node || 0) + (electric || 0) : null,
      };
    };
    const columns = { kwh: "energy_kwh_per_1m_output_tok", co2: "co2_kg_per_1m_output_tok", water: "water_l_per_1m_output_tok", cost: "cost_per_1m_output_tok" };
    const keyed = (grid) => { const keys = all("thead th", grid).map((head) => head.dataset.key); return (row, key) => row.cells[keys.indexOf(key)]; };
    const toggle = (grid, key, off) => {
      const head = grid.querySelector(`th[data-key="${key}"]`);
      head.toggleAttribute("data-off", off);
      for (const row of grid.tBodies[0].rows) row.cells[head.cellIndex].toggleAttribute("data-off", off);
    };
    // Each table of figures with those of its ranges and months, whose rows stand in the same order until a reader sorts them.
    const pairs = all("section.table:not(.compact)[data-name^='energy-']").map((each) => {
      const beside = (name) => document.querySelector(`section.table[data-name="${name}-${each.dataset.name.slice(7)}"]`);
      const [grid, ranges, months] = [each, beside("factor-ranges"), beside("month")].map((one) => one.querySelector("table"));
      const cell = keyed(grid);
      const rows = [...grid.tBodies[0].rows].map((row, index) => {
        const known = (key) => value(cell(row, key));
        return { row, range: ranges.tBodies[0].rows[index], month: months.tBodies[0].rows[index], known };
      });
      return { grid, ranges, months, cell, rows };
    });
    const shareOf = (known) => {
      const [low, high, joule] = ["low", "high", "energy_j_per_output_tok"].map(known);
      return low === null || high === null || !joule ? null : (high - low) / 2 / joule;
    };
    const apply = () => {
      const volume = read("volume");
      for (const { grid, ranges, months, cell, rows } of pairs) {
        const [end, whole] = [keyed(ranges), keyed(months)];
        const wide = {};
        const widest = Math.max(...rows.map(({ known }) => shareOf(known) || 0)) || null;
        for (const { row, range, month, known } of rows) {
          const share = shareOf(known) || widest;
          const [now, least, most] = [null, "low", "high"].map((side) => figures(known, side));
          for (const [key, column] of Object.entries(columns)) {
            write(cell(row, column), now[key], key === "cost" ? null : share);
            write(end(range, `${key}_low`), least[key]);
            write(end(range, `${key}_high`), most[key]);
            wide[key] = wide[key] || (least[key] !== null && most[key] > least[key]);
          }
          for (const key of ["kwh", "co2", "water", "cost"]) write(whole(month, `month_${key}`), times(now[key], volume), key === "cost" ? null : share);
        }
        for (const key of Object.keys(columns)) for (const side of ["low", "high"]) toggle(ranges, `${key}_${side}`, !wide[key]);
        toggle(months, "month_cost", rows.every(({ month }) => value(whole(month, "month_cost")) === null));
        toggle(grid, columns.cost, rows.every(({ row }) => value(cell(row, columns.cost)) === null));
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
})();
