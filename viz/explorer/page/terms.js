// A sentence for each term, in a card on hover and on focus: of the buttons at the end of the page, and of whatever else
// in it has data-term.

const TERMS = {
  child: "A child is a capsule of the lower layer: a vector that describes one part of the image.",
  parent: "A parent is a capsule of the last layer: a vector that stands for one class.",
  vote: "A vote û is what a child predicts a parent's vector to be: the child's vector times a learned matrix.",
  logit: "A logit b of a child and a parent is what the coupling is made of: the larger beside the child's others, the more.",
  coupling: "A coupling c, from 0 to 1, is how much of a child goes to a parent; those of one child sum to 1.",
  agreement: "Agreement ⟨û, v⟩ is the inner product of a vote and its parent: large where they point the same way.",
  entropy: "Entropy −Σ c ln c of a child is 0 when it has chosen one parent and largest when all its couplings are equal.",
  iteration: "An iteration is one round of routing: couplings from logits, parents from couplings, new logits from agreement.",
  routing: "Routing decides, anew for each image, to which parents the children's votes go.",
  squash: "Squashing keeps a vector's direction and makes its length n into n² / (1 + n²), which is below 1.",
  length: "The length of a parent's vector, from 0 to 1, says how sure the network is that the class is there.",
  decoder: "The decoder is a small network that draws an image from one parent's vector.",
};

let spoken = null; // the element whose card is shown

function showCard(element) {
  spoken?.removeAttribute("aria-describedby");
  spoken = element;
  const card = $("#card"),
    { left, top, bottom } = element.getBoundingClientRect();
  card.textContent = TERMS[element.dataset.term];
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

fill($("#terms"), Object.keys(TERMS).length, "button", (button, at) => {
  button.type = "button";
  button.textContent = button.dataset.term = Object.keys(TERMS)[at];
});
