// Links to what the page shows: the address follows it, is read at the start, and is copied by a button. What a page can
// show is its subject's: recorded.js's images, or what lies on live.js's desk.
//   limits           as link.js takes them
//   read()           the parts of the state that are the subject's
//   restore(state, moment)   show it, and then this moment: resume(moment)

import { LONGEST_TEXT, parsedState, stateText } from "./link.js";
import { choose, drawings, stop } from "./shell.js";
import { now, state } from "./state.js";
import { $ } from "./tools.js";
import { words } from "./words.js";

const SETTLED = 400; // milliseconds without a change after which the address follows

let subject,
  written = "", // what stands in the address, without "#"
  settling = 0;

// The state as text; "" where the page is as it opened.
function stateNow() {
  const k = Math.round(now.k),
    r = Math.round(now.r),
    { child, parent, all, pinned = {} } = subject.limits.children ? now : {};
  const epoch = k === state.trace.epochs.length - 1 ? null : state.trace.epochs[k],
    iteration = r === state.trace.trained - 1 ? null : r + 1;
  const view = all ? "all" : null;
  const pin = Object.keys(pinned ?? {}).length ? pinned : null;
  return stateText({ ...subject.read(), iteration, epoch, child, parent, view, pin }, subject.limits);
}

// Go to {iteration, epoch, child, parent, view, pin}, as far as the image on the page has them.
export function resume({ iteration = state.trace.trained, epoch = state.trace.epochs.at(-1), child = null, parent = null, view = null, pin = {} }) {
  stop();
  const k = state.trace.epochs.indexOf(epoch);
  choose({
    k: k < 0 ? state.trace.epochs.length - 1 : k,
    r: Math.min(iteration, state.trace.iterations) - 1,
    child: state.image.order?.includes(child) ? child : null,
    parent,
    all: view === "all",
    pinned: pin,
  });
}

function linkNow() {
  const text = stateNow();
  return location.href.split("#")[0] + (text && `#${text}`);
}

// Write the page's state into the address as soon as nothing changes for a while and no answer is pending: a link shows
// its answer.
export function follow() {
  clearTimeout(settling);
  settling = setTimeout(() => {
    if (now.playing || $("main").getAttribute("aria-busy") === "true") return follow();
    const text = stateNow();
    if (text === written || location.hash.slice(1) !== written) return; // the latter is read first: hashchange is coming
    try {
      history.replaceState(null, "", linkNow());
      written = text;
    } catch {
      // a browser that allows no change of addresses here, or no more of them for now
    }
  }, SETTLED);
}

// Show what the link in the address holds, where it fits this page.
function readAddress() {
  const text = location.hash.slice(1);
  if (text === written) return;
  const state = parsedState(text, subject.limits);
  written = text;
  if (state === null) {
    note(words.doesntFit);
    return follow();
  }
  note("");
  const { iteration, epoch, child, parent, view, pin, ...rest } = state;
  subject.restore(rest, { iteration, epoch, child, parent, view, pin });
}

export function note(text) {
  $("#note").textContent = text;
}

// Copy by the clipboard, or where a browser refuses it, by a field that is selected.
async function copyLink() {
  if (stateNow().length > LONGEST_TEXT) return note(words.tooLong);
  const link = linkNow(),
    field = $("#link");
  field.hidden = true;
  let copied = await navigator.clipboard?.writeText(link).then(() => true, () => false);
  if (!copied) {
    field.hidden = false;
    field.value = link;
    field.select();
    try {
      copied = document.execCommand("copy");
    } catch {
      copied = false;
    }
  }
  const where = location.protocol === "file:" ? words.thisMachine : "";
  note((copied ? words.linkCopied : words.linkInField) + where);
}

// Called when the page is first drawn.
export function share(what) {
  subject = what;
  drawings.push(follow);
  $("#copy").addEventListener("click", copyLink);
  addEventListener("hashchange", readAddress);
  if (location.hash) readAddress();
}
