// A sentence for each term, in a card on hover and on focus: of the buttons behind More, and of whatever else has
// data-term. What shows the term, by data-shows, lights up with it.

import { $ } from "./tools.js";
import { words } from "./words.js";

let spoken = null; // the element whose card is shown

function showCard(element) {
  hideCard();
  spoken = element;
  const card = $("#card"),
    { left, top, bottom } = element.getBoundingClientRect();
  const { term } = element.dataset;
  card.textContent = words.terms[term][1];
  card.hidden = false;
  for (const same of document.querySelectorAll(`[data-term="${term}"], [data-shows~="${term}"]`)) same.classList.add("lit");
  element.setAttribute("aria-describedby", "card");
  const { clientWidth: wide, clientHeight: high } = document.documentElement;
  card.style.left = `${Math.max(8, Math.min(left, wide - card.offsetWidth - 8))}px`;
  card.style.top = `${bottom + card.offsetHeight < high ? bottom : Math.max(0, top - card.offsetHeight)}px`;
}

function hideCard() {
  spoken?.removeAttribute("aria-describedby");
  spoken = null;
  for (const same of document.querySelectorAll(".lit")) same.classList.remove("lit");
  $("#card").hidden = true;
}

const termOf = ({ target }) => (target instanceof Element ? target.closest("[data-term]") : null);
document.addEventListener("pointerover", (event) => {
  const element = termOf(event);
  if (element) showCard(element);
  else if (spoken && spoken !== document.activeElement && event.target !== $("#card")) hideCard();
});
document.addEventListener("focusin", (event) => (termOf(event) ? showCard(termOf(event)) : spoken && hideCard()));
// Escape closes a card that the focus is on; else it is the page's.
document.addEventListener(
  "keydown",
  (event) => {
    if (event.key !== "Escape" || !spoken) return;
    if (spoken === document.activeElement) event.stopImmediatePropagation();
    hideCard();
  },
  { capture: true },
);
document.addEventListener("scroll", () => spoken && showCard(spoken), { passive: true });

for (const [term, [textContent]] of Object.entries(words.terms)) {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent });
  button.dataset.term = term;
  $("#terms").append(button);
}
