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
    // With the digits that an interval of the number's `share` to either side leaves; without one, three.
    const words = (number, share = null) => {
      const size = Math.abs(number);
      const digits = !size ? 0 : share ? -Math.floor(Math.log10(size * share)) : 2 - Math.floor(Math.log10(size));
      const most = Math.min(12, Math.max(0, digits));
      return number.toLocaleString("en", { minimumFractionDigits: most, maximumFractionDigits: most });
    };
    const write = (cell, number, share = null) => {
      cell.textContent = number === null ? "–" : words(number, share);
      if (number === null) delete cell.dataset.value; else cell.dataset.value = number;
    };
    const times = (a, b) => (a === null || b === null ? null : a * b);
    const nodeCost = (speed, price) => (price === null || !speed ? null : price / (3600 * speed) * 1e6);
    // A factor at the low or high end of its range; a value that the reader gave has none.
    const at = (key, end) => (end && !changed(key) && inputs[key].dataset[end] ? Number(inputs[key].dataset[end]) : read(key));
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
    // Each table of configs with that of one config's amounts, whose rows are the figures that are known.
    const pairs = all("section.table:not(.compact)[data-name^='energy-']").map((each) => {
      const amounts = document.querySelector(`section.table[data-name="amounts-${each.dataset.name.slice(7)}"] table`);
      const [grid, cell, own] = [each.querySelector("table"), keyed(each.querySelector("table")), keyed(amounts)];
      const rows = [...grid.tBodies[0].rows].map((row) => ({ row, known: (key) => value(cell(row, key)) }));
      const lines = [...amounts.tBodies[0].rows].map((line, index) => [Object.keys(columns)[index], (key) => own(line, key)]);
      const label = own(amounts.tBodies[0].rows[0], "label").textContent;
      return { grid, cell, rows, lines, of: rows.find(({ row }) => cell(row, "label").textContent === label) };
    });
    const shareOf = (known) => {
      const [low, high, joule] = ["low", "high", "energy_j_per_output_tok"].map(known);
      return low === null || high === null || !joule ? null : (high - low) / 2 / joule;
    };
    const apply = () => {
      const volume = read("volume");
      for (const { grid, cell, rows, lines, of } of pairs) {
        const widest = Math.max(...rows.map(({ known }) => shareOf(known) || 0)) || null;
        for (const { row, known } of rows) {
          const now = figures(known, null);
          for (const [key, column] of Object.entries(columns)) write(cell(row, column), now[key], key === "cost" ? null : shareOf(known) || widest);
        }
        const [now, least, most] = [null, "low", "high"].map((side) => figures(of.known, side));
        for (const [key, own] of lines) {
          write(own("million"), now[key]);
          own("range").textContent = least[key] !== null && most[key] > least[key] ? `${words(least[key])} to ${words(most[key])}` : "–";
          write(own("month"), times(now[key], volume));
          write(own("year"), times(now[key], 12 * volume));
        }
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
