// Cards of the index by hardware and model; the choice is in the address's fragment.
"use strict";
(() => {
  const { all, state } = window.tokenpeak;
  const form = document.querySelector(".filters");
  if (!form) return;
  form.hidden = false;
  const choices = { hardware: document.getElementById("filter-hardware"), model: document.getElementById("filter-model") };
  const cards = all(".card[data-model], #table-sweeps tbody tr");
  const apply = () => {
    for (const card of cards) {
      const isShown = Object.entries(choices).every(([key, choice]) => !choice.value || card.dataset[key].split("|").includes(choice.value));
      card.classList.toggle("left-out", !isShown);
    }
    const shown = all(".card[data-model]:not(.left-out)").length;
    form.querySelector("[role=status]").textContent = Object.values(choices).some((choice) => choice.value) ? `${shown} of ${all(".card[data-model]").length} sweeps` : "";
  };
  for (const [key, choice] of Object.entries(choices)) {
    const kept = state.get(key);
    if (kept && [...choice.options].some((option) => option.value === kept)) choice.value = kept;
    choice.addEventListener("change", () => { state.set(key, choice.value); apply(); });
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
})();
