// A sentence for each term, in a card on hover and on focus: of the buttons at the end of the page, and of whatever else
// in it has data-term.

let spoken = null; // the element whose card is shown

function showCard(element) {
  spoken?.removeAttribute("aria-describedby");
  spoken = element;
  const card = $("#card"),
    { left, top, bottom } = element.getBoundingClientRect();
  card.textContent = words.terms[element.dataset.term][1];
  card.hidden = false;
  element.setAttribute("aria-describedby", "card");
  const { clientWidth: wide, clientHeight: high } = document.documentElement;
  card.style.left = `${Math.max(8, Math.min(left, wide - card.offsetWidth - 8))}px`;
  card.style.top = `${bottom + card.offsetHeight < high ? bottom : Math.max(0, top - card.offsetHeight)}px`;
}

function hideCard() {
  spoken?.removeAttribute("aria-describedby");
  spoken = null;
  $("#card").hidden = true;
}

const termOf = ({ target }) => (target instanceof Element ? target.closest("[data-term]") : null);
document.addEventListener("pointerover", (event) => {
  const element = termOf(event);
  if (element) showCard(element);
  else if (spoken && spoken !== document.activeElement && event.target !== $("#card")) hideCard();
});
document.addEventListener("focusin", (event) => (termOf(event) ? showCard(termOf(event)) : spoken && hideCard()));
document.addEventListener("scroll", () => spoken && showCard(spoken), { passive: true });

function nameTerms() {
  const names = Object.keys(words.terms);
  fill($("#terms"), names.length, "button", (button, at) => {
    button.type = "button";
    button.dataset.term = names[at];
  });
  names.forEach((name, at) => ($("#terms").children[at].textContent = words.terms[name][0]));
}

nameTerms();
