/* The documentation works without this: it adds a search over titles, headings, names and text, and buttons that copy code. */
(() => {
  "use strict";
  const make = (name, attributes = {}, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };

  // --- search ----------------------------------------------------------------------------------------------------
  const MOST = 12;
  const menu = document.querySelector(".docs-menu");
  const index = window.tokenpeakIndex || [];
  const score = (entry, words) => {
    const [title, address, page, says, text = ""] = entry.map((part) => part.toLowerCase());
    const whole = address.includes("#") ? 0 : 45; // a page of its own comes before a row that has the name
    let sum = 0;
    for (const word of words) {
      const own = title === word ? 60 : title.startsWith(word) ? 30 : title.includes(word) ? 20 + whole : 0;
      const near = says.includes(word) ? 5 : page.includes(word) ? 4 : text.includes(word) ? 2 : 0;
      if (!own && !near) return 0;
      sum += own + near;
    }
    return sum;
  };
  if (menu && index.length) {
    const input = make("input", { type: "search", placeholder: "Search", "aria-label": "Search the documentation", autocomplete: "off" });
    const status = make("p", { class: "note", role: "status" });
    const results = make("ol");
    const look = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const found = words.length ? index.map((entry) => [score(entry, words), entry]).filter(([points]) => points > 0) : [];
      found.sort((a, b) => b[0] - a[0]);
      results.replaceChildren(...found.slice(0, MOST).map(([, [title, address, page, says]]) => make("li", {},
        make("a", { href: menu.dataset.docs + address }, title), make("div", { class: "says" }, [page, says].filter(Boolean).join(": ")))));
      status.textContent = words.length ? (found.length > MOST ? `The first ${MOST} of ${found.length}` : `${found.length} found`) : "";
    };
    input.addEventListener("input", look);
    input.addEventListener("keydown", (event) => { if (event.key === "Escape") { input.value = ""; look(); } });
    const place = matchMedia("(min-width: 900px)").matches ? menu : document.querySelector(".doc");
    place.prepend(make("div", { class: "docs-search", role: "search" }, input, status, results));
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) { event.preventDefault(); input.focus(); }
    });
  }

  // --- code ------------------------------------------------------------------------------------------------------
  for (const pre of document.querySelectorAll(".doc .prose pre[data-language]:not([data-language=''])")) {
    const button = make("button", { type: "button" }, "Copy");
    button.addEventListener("click", () => {
      navigator.clipboard.writeText(pre.textContent.trim()).then(
        () => { button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500); },
        () => { getSelection().selectAllChildren(pre); });
    });
    const around = make("div", { class: "copied" });
    pre.replaceWith(around);
    around.append(pre, button);
  }
})();
