// Helpers for every file of a page: its elements, colours, and numbers in words.

export const $ = (selector) => document.querySelector(selector);
export const scratch = document.createElement("canvas").getContext("2d"); // measures text and reads colours
const STANDS_OUT = 3.2; // contrast of a colour with its background; 3 is asked of graphics

export function channels(hex) {
  return [1, 3, 5].map((from) => parseInt(hex.slice(from, from + 2), 16));
}

// The contrast of two colours, 1 to 21, as the Web Content Accessibility Guidelines 2.2 define it.
function contrast(one, other) {
  const [low, high] = [one, other]
    .map((color) => {
      const [red, green, blue] = color
        .map((channel) => channel / 255)
        .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    })
    .sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

// A colour mixed with white until it stands out from dark paper; at least a little, since lines are thin, unless `least` is 0.
export function lighter(color, paper, least = 0.2) {
  const own = typeof color === "string" ? channels(color) : color,
    mixed = (part) => own.map((channel) => Math.round(channel + part * (255 - channel)));
  let part = least;
  while (contrast(mixed(part), channels(paper)) < STANDS_OUT) part += 0.02;
  return `rgb(${mixed(part).join(" ")})`;
}

// Make the list hold `count` elements of this HTML; the new ones are handed to start(element, index).
export function fill(list, count, html, start = () => {}) {
  const template = Object.assign(document.createElement("template"), { innerHTML: html });
  while (list.children.length > count) list.lastChild.remove();
  while (list.children.length < count) {
    list.append(template.content.cloneNode(true));
    start(list.lastChild, list.children.length - 1);
  }
}

// Make a select hold these options, each [value, text].
export function setOptions(select, options) {
  fill(select, options.length, "<option></option>");
  options.forEach(([value, textContent], at) => Object.assign(select.children[at], { value, textContent }));
}

export function setBar(element, share, color) {
  element.style.setProperty("--share", share);
  element.style.setProperty("--of", color);
}

// What a child's largest coupling c with one of so many parents is called, as in viz/routing/selection.py.
export function decision(c, choices) {
  const beyond = (c - 1 / choices) / (1 - 1 / choices);
  return { chooses: beyond > 0.5, undecided: beyond < 0.1 };
}

export function indexOfLargest(lengths) {
  return lengths.indexOf(Math.max(...lengths));
}

export function counted(number, one, many) {
  return `${thousands(number)} ${number === 1 ? one : many}`;
}

export function thousands(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

export function fixed(value, digits) {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "\u2212");
}

export function sentence(text) {
  return text[0].toUpperCase() + text.slice(1);
}
